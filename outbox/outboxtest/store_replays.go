package outboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// replayPace is how long after a step of a replay the next step may add rows.
const replayPace = time.Second

// Replays implements [outbox.Store].
func (s *Store) Replays(ctx context.Context, _ outbox.DB) ([]outbox.ReplayRow, error) {
	if err := s.lock(ctx, "reading the replays"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []outbox.ReplayRow
	for _, row := range s.replays {
		row.Name, row.Now = "", s.clock()
		list = append(list, row)
	}
	return list, nil
}

// SetReplay implements [outbox.Store].
func (s *Store) SetReplay(ctx context.Context, _ outbox.DB, was string, next outbox.ReplayRow, envs []outbox.Envelope) (bool, error) {
	if err := s.lock(ctx, "setting replay "+next.Name); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	now, row := s.clock(), s.replays[next.Name]
	if row.Version != was || len(envs) > 0 && row.NextAt.After(now) {
		return false, nil
	}
	if next.Value == "" {
		delete(s.replays, next.Name)
		return true, nil
	}
	row.Name, row.Version, row.Value = next.Name, next.Version, next.Value
	if len(envs) > 0 {
		row.NextAt = now.Add(replayPace)
	}
	s.replays[next.Name] = row
	for _, env := range envs {
		_, _, _ = s.insert([]outbox.Envelope{env}, []string{env.EventID}, "", now, nil)
	}
	return true, nil
}

// Delivered implements [outbox.Store].
func (s *Store) Delivered(ctx context.Context, _ outbox.DB, q outbox.DeliveredQuery) (outbox.Delivered, error) {
	found := outbox.Delivered{DoneAt: q.AfterDoneAt, EventID: q.AfterEventID}
	if err := s.lock(ctx, "reading delivered events"); err != nil {
		return found, err
	}
	defer s.mu.Unlock()
	rows := s.visible(diedFirst, func(r *memRow) bool {
		at := r.endedAt()
		return r.Status == outbox.StatusDone && at.Before(q.Until) &&
			(at.After(q.AfterDoneAt) || at.Equal(q.AfterDoneAt) && r.env.EventID > q.AfterEventID)
	})
	for _, r := range rows {
		if found.Looked == q.Look || len(found.Events)+found.Unreadable == q.Limit {
			return found, nil
		}
		found.Looked++
		found.DoneAt, found.EventID = r.endedAt(), r.env.EventID
		switch {
		case !r.wasDelivered(q):
		case r.corrupt:
			found.Unreadable++
		default:
			found.Events = append(found.Events, r.envelope())
		}
	}
	found.End = true
	return found, nil
}

// wasDelivered reports whether the DONE row is that of an event which the query chooses.
func (r *memRow) wasDelivered(q outbox.DeliveredQuery) bool {
	return !r.isDeleted() && r.env.Headers[outbox.HeaderListener] == "" &&
		r.env.AggregateType == q.AggregateType && slices.Contains(q.EventTypes, r.env.EventType) &&
		isEmptyOr(q.AggregateID, r.env.AggregateID) && isEmptyOr(q.TenantID, r.env.TenantID)
}

// Added implements [outbox.Store].
func (s *Store) Added(ctx context.Context, _ outbox.DB, eventIDs []string) (added outbox.AddedRows, err error) {
	if err := s.lock(ctx, "counting events that were not tried or failed"); err != nil {
		return added, err
	}
	defer s.mu.Unlock()
	for _, r := range s.named(eventIDs, func(r *memRow) bool { return r.Status != outbox.StatusDone }) {
		switch {
		case r.live() && r.Attempts == 0:
			added.Untried++
		case r.Status != outbox.StatusNew:
			added.Failed++
			added.LastError = max(added.LastError, r.LastError)
		}
	}
	return added, nil
}

package outboxtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Check implements [outbox.Store].
func (s *Store) Check(ctx context.Context, _ outbox.DB, _ bool) error {
	if err := s.lock(ctx, "checking the database"); err != nil {
		return err
	}
	s.mu.Unlock()
	return nil
}

// Mark implements [outbox.Store].
func (s *Store) Mark(ctx context.Context, _ outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if err := s.lock(ctx, "marking as "+outcome.String(), idsOf(marks, func(m outbox.Mark) string { return m.EventID })...); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.clock()
	var left map[string]outbox.RowState
	for _, m := range marks {
		if s.mark(outcome, m, now) {
			continue
		}
		if state := s.state(m.EventID); m.Lease != "" || !m.DueAt.IsZero() || !state.Exists {
			if left == nil {
				left = map[string]outbox.RowState{}
			}
			left[m.EventID] = state
		}
	}
	return left, nil
}

// mark reports whether the row was changed.
func (s *Store) mark(outcome outbox.Outcome, m outbox.Mark, now time.Time) bool {
	r := s.rows[m.EventID]
	if r == nil || r.hidden || !r.passes(m) || !r.open(outcome) {
		return false
	}
	s.apply(r, outcome, m, now)
	return true
}

func (s *Store) state(eventID string) outbox.RowState {
	r := s.rows[eventID]
	if r == nil || r.hidden {
		return outbox.RowState{}
	}
	return outbox.RowState{Exists: true, Status: r.Status, Lease: r.LockedBy, DueAt: r.AvailableAt}
}

// Complete implements [outbox.Store]. Through a [Scope] the outcome takes effect when the scope
// commits.
func (s *Store) Complete(ctx context.Context, tx outbox.Execer, outcome outbox.Outcome, m outbox.Mark) (bool, error) {
	if outcome != outbox.OutcomeDone && outcome != outbox.OutcomeDelete {
		return false, s.fail("completing", errOutcome(outcome), m.EventID)
	}
	if err := ctx.Err(); err != nil {
		return false, s.fail("completing", err, m.EventID)
	}
	r := s.lockRow(m)
	if r == nil {
		return false, nil
	}
	scope, ok := tx.(*Scope)
	if !ok {
		s.unlockRow(r, func() { s.apply(r, outcome, m, s.clock()) })
		return true, nil
	}
	err := scope.join(nil, func() {
		s.unlockRow(r, func() { s.apply(r, outcome, m, s.clock()) })
	}, func() { s.unlockRow(r, func() {}) })
	return err == nil, err
}

func errOutcome(outcome outbox.Outcome) error {
	return fmt.Errorf("the outcome is %s; only done and delete end an event", outcome)
}

// lockRow is the row that a mark may complete, locked; nil when there is no such row.
func (s *Store) lockRow(m outbox.Mark) *memRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[m.EventID]
	if r == nil || r.hidden || r.locked || !r.live() || !r.passes(m) {
		return nil
	}
	r.locked = true
	return r
}

func (s *Store) unlockRow(r *memRow, apply func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.locked = false
	apply()
}

// passes reports whether the row has the lease that a mark names, or else no lease and the DueAt of
// the mark.
func (r *memRow) passes(m outbox.Mark) bool {
	if m.Lease != "" {
		return r.LockedBy == m.Lease
	}
	return m.DueAt.IsZero() || !r.leased() && r.AvailableAt.Equal(m.DueAt)
}

// open reports whether an outcome may change the row.
func (r *memRow) open(kind outbox.Outcome) bool {
	if kind == outbox.OutcomeDone || kind == outbox.OutcomeDelete {
		return r.Status != outbox.StatusDone
	}
	return r.live()
}

func (s *Store) apply(r *memRow, kind outbox.Outcome, m outbox.Mark, now time.Time) {
	r.unlock()
	switch kind {
	case outbox.OutcomeDone:
		r.Status, r.DoneAt = outbox.StatusDone, now
	case outbox.OutcomeDelete:
		delete(s.rows, m.EventID)
	case outbox.OutcomeRetry:
		r.Status, r.AvailableAt, r.LastError = outbox.StatusRetry, m.AvailableAt, m.Error
		r.Attempts = max(m.Attempts, r.Attempts)
	case outbox.OutcomeDead:
		r.Status, r.DoneAt, r.LastError = outbox.StatusDead, now, m.Error
		r.Attempts = max(m.Attempts, r.Attempts)
	case outbox.OutcomeDeferred:
		r.Status, r.AvailableAt, r.LastError = outbox.StatusNew, m.AvailableAt, cmp.Or(m.Error, r.LastError)
	case outbox.OutcomeReleased, outbox.OutcomeSplit:
	}
}

// Renew implements [outbox.Store].
func (s *Store) Renew(ctx context.Context, _ outbox.DB, leases []outbox.Lease) error {
	if err := s.lock(ctx, "renewing the lease of", idsOf(leases, func(l outbox.Lease) string { return l.EventID })...); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := s.clock()
	for _, l := range leases {
		if r := s.rows[l.EventID]; r != nil && !r.hidden && l.Name != "" && r.LockedBy == l.Name {
			r.LockedAt = now
		}
	}
	return nil
}

// Purge implements [outbox.Store].
func (s *Store) Purge(ctx context.Context, _ outbox.DB, q outbox.PurgeQuery) (outbox.Purged, error) {
	if err := s.lock(ctx, "purging old rows"); err != nil {
		return outbox.Purged{}, err
	}
	defer s.mu.Unlock()
	timeOf := (*memRow).endedAt
	if q.ByAge {
		timeOf = func(r *memRow) time.Time { return r.CreatedAt }
	}
	rows := first(s.visible(oldestFirst, func(r *memRow) bool {
		of := q.ByAge || r.Status.Terminal() && (q.Status == outbox.StatusNew || r.Status == q.Status)
		return of && timeOf(r).Before(q.Before) && !timeOf(r).Before(q.Since) && !r.isOneOf(q.Except) && (len(q.Only) == 0 || r.isOneOf(q.Only))
	}), q.Limit)
	var purged outbox.Purged
	if n := len(rows); n > 0 && len(q.Only)+len(q.Except) > 0 {
		purged.Last = timeOf(rows[n-1])
	}
	purged.Rows = s.remove(rows)
	return purged, nil
}

// QueryDead implements [outbox.Store].
func (s *Store) QueryDead(ctx context.Context, _ outbox.DB, q outbox.DeadRowsQuery) ([]outbox.DeadLetter, error) {
	if err := s.lock(ctx, "listing dead letters"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	after := &memRow{RawRow: RawRow{DoneAt: q.AfterDiedAt}, env: outbox.Envelope{EventID: q.AfterEventID}}
	rows := first(s.visible(diedFirst, func(r *memRow) bool {
		return r.matches(q.DeadFilter) && (q.AfterDiedAt.IsZero() && q.AfterEventID == "" || diedFirst(r, after) > 0)
	}), q.Limit)
	var letters []outbox.DeadLetter
	for _, r := range rows {
		l := r.letter()
		l.Envelope, l.LastError = forList(l.Envelope), listedError(l.LastError)
		switch {
		case q.KeysOnly:
			l = outbox.DeadLetter{Envelope: outbox.Envelope{EventID: l.EventID}, DiedAt: l.DiedAt}
		case !q.Listed:
			l.OccurredAt, l.AvailableAt, l.Attempts, l.PayloadBytes = time.Time{}, time.Time{}, 0, 0
			delete(l.Headers, outbox.HeaderEventID)
		}
		letters = append(letters, l)
	}
	return letters, nil
}

// GetDead implements [outbox.Store].
func (s *Store) GetDead(ctx context.Context, _ outbox.DB, eventID string) (outbox.DeadLetter, error) {
	if err := s.lock(ctx, "reading dead", eventID); err != nil {
		return outbox.DeadLetter{}, err
	}
	defer s.mu.Unlock()
	dead := s.named([]string{eventID}, isDead)
	if len(dead) == 0 {
		return outbox.DeadLetter{}, s.fail("reading dead", outbox.ErrNotFound, eventID)
	}
	return dead[0].letter(), nil
}

// CountDead implements [outbox.Store].
func (s *Store) CountDead(ctx context.Context, _ outbox.DB, f outbox.DeadFilter) (int64, error) {
	if err := s.lock(ctx, "counting dead letters"); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return int64(len(s.visible(diedFirst, func(r *memRow) bool { return r.matches(f) }))), nil
}

// ReplayDead implements [outbox.Store].
func (s *Store) ReplayDead(ctx context.Context, _ outbox.DB, eventIDs []string, now time.Time, to outbox.Status) (int, error) {
	if err := s.lock(ctx, "replaying dead", eventIDs...); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	replayed := 0
	var taken []string
	for _, r := range s.named(eventIDs, isDead) {
		if holderOf(s.rows, r.env.EventID, r.unique) != "" {
			taken = append(taken, r.env.EventID)
			continue
		}
		r.RawRow = RawRow{Status: to, AvailableAt: now, CreatedAt: r.CreatedAt}
		replayed++
	}
	if len(taken) > 0 {
		return replayed, &outbox.KeyTakenError{EventID: taken[0], Letters: len(taken)}
	}
	return replayed, nil
}

// DeleteDead implements [outbox.Store].
func (s *Store) DeleteDead(ctx context.Context, _ outbox.DB, eventIDs []string, by string, at time.Time) (int, error) {
	if err := s.lock(ctx, "deleting dead", eventIDs...); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	rows := s.named(eventIDs, isDead)
	if by == "" {
		return s.remove(rows), nil
	}
	for _, r := range rows {
		r.Status, r.LockedBy, r.LockedAt, r.DoneAt = outbox.StatusDone, by, r.DoneAt, at
	}
	return len(rows), nil
}

// RestoreDead implements [outbox.Store].
func (s *Store) RestoreDead(ctx context.Context, _ outbox.DB, q outbox.DeletedQuery) (outbox.Restored, error) {
	if err := s.lock(ctx, "restoring dead letters"); err != nil {
		return outbox.Restored{}, err
	}
	defer s.mu.Unlock()
	rows := s.deleted(q)
	r := outbox.Restored{Rows: len(rows), Looked: len(rows)}
	for _, row := range rows {
		r.Last = row.DoneAt
		row.Status, row.DoneAt = outbox.StatusDead, row.LockedAt
		row.unlock()
	}
	return r, nil
}

// CountDeleted implements [outbox.Store].
func (s *Store) CountDeleted(ctx context.Context, _ outbox.DB, q outbox.DeletedQuery) (int64, error) {
	if err := s.lock(ctx, "counting deleted dead letters"); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return int64(len(s.deleted(q))), nil
}

// deleted are the rows that a query chooses.
func (s *Store) deleted(q outbox.DeletedQuery) []*memRow {
	return first(s.visible(diedFirst, func(r *memRow) bool {
		return r.Status == outbox.StatusDone && r.LockedBy == q.By && !r.endedAt().Before(q.Since) && r.endedAt().Before(q.Until)
	}), q.Limit)
}

// isDeleted reports whether the row is of a deleted dead letter.
func (r *memRow) isDeleted() bool {
	return r.Status == outbox.StatusDone && strings.HasPrefix(r.LockedBy, outbox.DeletedBy)
}

func (s *Store) remove(rows []*memRow) int {
	for _, r := range rows {
		delete(s.rows, r.env.EventID)
	}
	return len(rows)
}

func isDead(r *memRow) bool { return r.Status == outbox.StatusDead }

func (r *memRow) letter() outbox.DeadLetter {
	return outbox.DeadLetter{Envelope: r.envelope(), LastError: r.LastError, DiedAt: r.endedAt(), PayloadBytes: len(r.env.Payload.String())}
}

func (r *memRow) matches(f outbox.DeadFilter) bool {
	died := r.endedAt()
	return isDead(r) &&
		isEmptyOr(f.EventType, r.env.EventType) && isEmptyOr(f.AggregateType, r.env.AggregateType) &&
		isEmptyOr(f.AggregateID, r.env.AggregateID) && isEmptyOr(f.TenantID, r.env.TenantID) &&
		(len(f.EventIDs) == 0 || slices.Contains(f.EventIDs, r.env.EventID)) &&
		(f.Since.IsZero() || !died.Before(f.Since)) &&
		(f.Until.IsZero() || died.Before(f.Until))
}

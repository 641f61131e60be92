package outboxtest

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Check implements [outbox.Store].
func (s *Store) Check(ctx context.Context, _ outbox.DB, _ bool) error {
	if err := ctx.Err(); err != nil {
		return s.fail("checking the database", nil, err)
	}
	return nil
}

// Mark implements [outbox.Store].
func (s *Store) Mark(ctx context.Context, _ outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		ids := make([]string, len(marks))
		for i := range marks {
			ids[i] = marks[i].EventID
		}
		return nil, s.fail("marking as "+outcome.String(), ids, err)
	}
	now := s.clock()
	var left map[string]outbox.RowState
	for _, m := range marks {
		r := s.rows[m.EventID]
		there := r != nil && !r.hidden
		switch {
		case there && (m.Lease == "" || r.LockedBy == m.Lease) && r.open(outcome):
			s.apply(r, outcome, m, now)
		case m.Lease != "":
			if left == nil {
				left = map[string]outbox.RowState{}
			}
			left[m.EventID] = outbox.RowState{}
			if there {
				left[m.EventID] = outbox.RowState{Exists: true, Status: r.Status, Lease: r.LockedBy}
			}
		}
	}
	return left, nil
}

// Complete implements [outbox.Store]. Through a [Scope] it takes effect when that
// commits.
func (s *Store) Complete(ctx context.Context, tx outbox.Execer, outcome outbox.Outcome, m outbox.Mark) (bool, error) {
	if outcome != outbox.OutcomeDone && outcome != outbox.OutcomeDelete {
		return false, s.fail("completing", []string{m.EventID}, fmt.Errorf("the outcome is %s; only done and delete complete an event", outcome))
	}
	if err := ctx.Err(); err != nil {
		return false, s.fail("completing", []string{m.EventID}, err)
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

// lockRow is the row that a mark may complete, locked; nil when there is none.
func (s *Store) lockRow(m outbox.Mark) *memRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[m.EventID]
	if r == nil || r.hidden || r.locked || !r.live() || m.Lease != "" && r.LockedBy != m.Lease {
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
		r.count(m)
	case outbox.OutcomeDead:
		r.Status, r.DoneAt, r.LastError = outbox.StatusDead, now, m.Error
		r.count(m)
	case outbox.OutcomeDeferred:
		r.Status, r.AvailableAt = outbox.StatusNew, m.AvailableAt
	case outbox.OutcomeReleased:
	}
}

// count sets the attempts of an outcome.
func (r *memRow) count(m outbox.Mark) {
	if m.Attempts > 0 {
		r.Attempts = m.Attempts
	}
}

// Renew implements [outbox.Store].
func (s *Store) Renew(ctx context.Context, _ outbox.DB, leases []outbox.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		ids := make([]string, len(leases))
		for i := range leases {
			ids[i] = leases[i].EventID
		}
		return s.fail("renewing the lease of", ids, err)
	}
	now := s.clock()
	for _, l := range leases {
		if r := s.rows[l.EventID]; r != nil && !r.hidden && l.Name != "" && r.LockedBy == l.Name {
			r.LockedAt = now
		}
	}
	return nil
}

// hold is the owner of the table's hold, and when it expires.
type hold struct {
	owner string
	until time.Time
}

// HoldTable implements [outbox.Store].
func (s *Store) HoldTable(ctx context.Context, _ outbox.DB, owner string, d time.Duration) (outbox.TableHolder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return outbox.TableHolder{}, s.fail("holding the table", nil, err)
	}
	now, was := s.clock(), s.hold
	if was.owner != "" && was.owner != owner && was.until.After(now) {
		return outbox.TableHolder{Owner: was.owner}, nil
	}
	s.hold = hold{owner: owner, until: now.Add(d)}
	if was.owner == owner {
		was.owner = ""
	}
	return outbox.TableHolder{Owner: owner, Died: was.owner}, nil
}

// ReleaseTable implements [outbox.Store].
func (s *Store) ReleaseTable(ctx context.Context, _ outbox.DB, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return s.fail("releasing the table", nil, err)
	}
	if s.hold.owner == owner {
		s.hold = hold{}
	}
	return nil
}

// Purge implements [outbox.Store].
func (s *Store) Purge(ctx context.Context, _ outbox.DB, q outbox.PurgeQuery) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, s.fail("purging old rows", nil, err)
	}
	old := first(s.visible(oldestFirst, func(r *memRow) bool {
		if q.ByAge {
			return r.CreatedAt.Before(q.Before)
		}
		return r.Status.Terminal() && r.endedAt().Before(q.Before)
	}), q.Limit)
	return s.remove(old), nil
}

// QueryDead implements [outbox.Store].
func (s *Store) QueryDead(ctx context.Context, _ outbox.DB, q outbox.DeadQuery) ([]outbox.DeadLetter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, s.fail("listing dead letters", nil, err)
	}
	after := &memRow{RawRow: RawRow{DoneAt: q.AfterDiedAt}, env: outbox.Envelope{EventID: q.AfterEventID}}
	rows := first(s.visible(diedFirst, func(r *memRow) bool {
		return r.matches(q.DeadFilter) && (q.AfterDiedAt.IsZero() && q.AfterEventID == "" || diedFirst(r, after) > 0)
	}), q.Limit)
	var letters []outbox.DeadLetter
	for _, r := range rows {
		l := r.letter()
		if q.KeysOnly {
			l = outbox.DeadLetter{Envelope: outbox.Envelope{EventID: l.EventID}, DiedAt: l.DiedAt}
		}
		letters = append(letters, l)
	}
	return letters, nil
}

// GetDead implements [outbox.Store].
func (s *Store) GetDead(ctx context.Context, _ outbox.DB, eventID string) (outbox.DeadLetter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return outbox.DeadLetter{}, s.fail("reading dead", []string{eventID}, err)
	}
	r := s.rows[eventID]
	if r == nil || r.hidden || !isDead(r) {
		return outbox.DeadLetter{}, s.fail("reading dead", []string{eventID}, outbox.ErrNotFound)
	}
	return r.letter(), nil
}

// CountDead implements [outbox.Store].
func (s *Store) CountDead(ctx context.Context, _ outbox.DB, f outbox.DeadFilter) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, s.fail("counting dead letters", nil, err)
	}
	return int64(len(s.visible(diedFirst, func(r *memRow) bool { return r.matches(f) }))), nil
}

// ReplayDead implements [outbox.Store].
func (s *Store) ReplayDead(ctx context.Context, _ outbox.DB, eventIDs []string, now time.Time) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, s.fail("replaying dead", eventIDs, err)
	}
	dead := s.named(eventIDs, isDead)
	for _, r := range dead {
		r.RawRow = RawRow{Status: outbox.StatusNew, AvailableAt: now, CreatedAt: r.CreatedAt}
	}
	return len(dead), nil
}

// DeleteDead implements [outbox.Store].
func (s *Store) DeleteDead(ctx context.Context, _ outbox.DB, eventIDs []string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, s.fail("deleting dead", eventIDs, err)
	}
	return s.remove(s.named(eventIDs, isDead)), nil
}

func (s *Store) remove(rows []*memRow) int {
	for _, r := range rows {
		delete(s.rows, r.env.EventID)
	}
	return len(rows)
}

func isDead(r *memRow) bool { return r.Status == outbox.StatusDead }

func (r *memRow) letter() outbox.DeadLetter {
	return outbox.DeadLetter{Envelope: r.envelope(), LastError: r.LastError, DiedAt: r.endedAt()}
}

func (r *memRow) matches(f outbox.DeadFilter) bool {
	died := r.endedAt()
	return isDead(r) &&
		(f.EventType == "" || r.env.EventType == f.EventType) &&
		(f.AggregateType == "" || r.env.AggregateType == f.AggregateType) &&
		(f.Since.IsZero() || !died.Before(f.Since)) &&
		(f.Until.IsZero() || died.Before(f.Until))
}

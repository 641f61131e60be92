package outboxtest

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var errHeaders = errors.New("decoding headers: they are no flat object of strings")

// Poll implements [outbox.Store].
func (s *Store) Poll(ctx context.Context, _ outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if err := s.lock(ctx, "polling due events"); err != nil {
		return outbox.Batch{}, err
	}
	defer s.mu.Unlock()
	rows := s.polled(q)
	b := batchOf(slices.DeleteFunc(slices.Clone(rows), (*memRow).leased))
	for _, r := range rows {
		if r.leased() {
			b.Expired = append(b.Expired, outbox.Lease{EventID: r.env.EventID, Name: r.LockedBy})
		}
	}
	if n := len(rows); n > 0 {
		b.Next = cursorOf(rows[n-1])
	}
	return b, nil
}

// polled are the rows of a poll.
func (s *Store) polled(q outbox.PollQuery) []*memRow {
	now := s.clock()
	return first(s.visible(dueFirst, func(r *memRow) bool {
		return r.due(q.Now, q.CreatedBefore) && !r.isOneOf(q.Except) &&
			(!r.leased() || !q.FreshOnly && r.expired(now, q.LeaseDuration)) &&
			r.after(q.After) && r.upto(q.Upto)
	}), q.Limit)
}

// Claim implements [outbox.Store].
func (s *Store) Claim(ctx context.Context, _ outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if err := s.lock(ctx, "claiming due events"); err != nil {
		return outbox.Batch{}, err
	}
	defer s.mu.Unlock()
	now := s.clock()
	rows := first(s.visible(dueFirst, func(r *memRow) bool {
		return !r.locked && r.taken == 0 && (q.By.IsZero() || !now.After(q.By)) && r.due(q.Now, q.CreatedBefore) && !r.isOneOf(q.Except) && (len(q.EventIDs) == 0 || slices.Contains(q.EventIDs, r.env.EventID)) &&
			(!q.ExpiredOnly || r.leased()) && (!r.leased() || !q.FreshOnly && r.expired(now, q.LeaseDuration)) &&
			r.after(q.After) && r.upto(q.Upto)
	}), q.Limit)
	var next outbox.Cursor // before the rows move
	if n := len(rows); n > 0 {
		next = cursorOf(rows[n-1])
	}
	for _, r := range rows {
		// An expired lease means that a process died with the event.
		if r.leased() {
			r.Attempts = min(r.Attempts, math.MaxInt32-2) + 1
		}
		r.LockedBy, r.LockedAt = q.Lease, now
		if q.Move {
			r.AvailableAt = r.AvailableAt.Add(time.Microsecond)
		}
	}
	b := batchOf(rows)
	b.Next = next
	return b, nil
}

// Leased implements [outbox.Store].
func (s *Store) Leased(ctx context.Context, _ outbox.DB, names []string) ([]outbox.Lease, error) {
	if err := s.lock(ctx, "reading leased events"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var leases []outbox.Lease
	for _, r := range s.rows {
		if !r.hidden && r.live() && r.leased() && slices.Contains(names, r.LockedBy) {
			leases = append(leases, outbox.Lease{EventID: r.env.EventID, Name: r.LockedBy})
		}
	}
	return leases, nil
}

// NextDue implements [outbox.Store].
func (s *Store) NextDue(ctx context.Context, _ outbox.DB, after time.Time) (time.Time, error) {
	if err := s.lock(ctx, "asking when the next event is due"); err != nil {
		return time.Time{}, err
	}
	defer s.mu.Unlock()
	var next time.Time
	for _, r := range s.rows {
		if !r.hidden && r.live() && r.AvailableAt.After(after) && (next.IsZero() || r.AvailableAt.Before(next)) {
			next = r.AvailableAt
		}
	}
	return next, nil
}

// Stats implements [outbox.Store].
func (s *Store) Stats(ctx context.Context, _ outbox.DB, now time.Time, paused []outbox.EventKind) (outbox.StoreStats, error) {
	if err := s.lock(ctx, "reading stats"); err != nil {
		return outbox.StoreStats{}, err
	}
	defer s.mu.Unlock()
	var st outbox.StoreStats
	if len(paused) > 0 {
		due := s.visible(dueFirst, func(r *memRow) bool { return r.due(now, time.Time{}) })
		for _, r := range first(due, outbox.StatsLimit) {
			if r.isOneOf(paused) {
				st.DuePaused++
			}
		}
	}
	count := func(n *int64) { *n = min(*n+1, outbox.StatsLimit) }
	for _, r := range s.rows {
		switch {
		case r.hidden, r.Status == outbox.StatusDone:
		case r.Status == outbox.StatusDead:
			count(&st.Dead)
		case r.AvailableAt.After(now):
			count(&st.Delayed)
		default:
			count(&st.Due)
			if !r.isOneOf(paused) && (st.OldestDue.IsZero() || r.AvailableAt.Before(st.OldestDue)) {
				st.OldestDue = r.AvailableAt
			}
		}
	}
	return st, nil
}

// DueKinds implements [outbox.Inspector].
func (s *Store) DueKinds(ctx context.Context, _ outbox.DB, q outbox.DueKindsQuery) ([]outbox.DueKind, error) {
	if err := s.lock(ctx, "reading how long events have been due"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	due := s.visible(dueFirst, func(r *memRow) bool {
		until := q.Now
		for _, limit := range q.Limits {
			if r.isOneOf([]outbox.EventKind{limit.Kind}) {
				until = limit.Before
			}
		}
		return r.due(until, time.Time{}) && !r.isOneOf(q.Except)
	})
	var list []outbox.DueKind
	for _, r := range first(due, outbox.StatsLimit) { // the first row of a kind is the oldest
		kind := outbox.EventKind{AggregateType: r.env.AggregateType, EventType: r.env.EventType}
		i := slices.IndexFunc(list, func(k outbox.DueKind) bool { return k.Kind == kind })
		if i < 0 {
			i, list = len(list), append(list, outbox.DueKind{Kind: kind, Oldest: r.AvailableAt})
		}
		list[i].Events++
	}
	return list, nil
}

// due reports whether a row can be delivered.
func (r *memRow) due(now, createdBefore time.Time) bool {
	return r.live() && !r.AvailableAt.After(now) && (createdBefore.IsZero() || !r.CreatedAt.After(createdBefore))
}

// isOneOf reports whether the row's event is of one of the kinds.
func (r *memRow) isOneOf(kinds []outbox.EventKind) bool {
	return slices.Contains(kinds, outbox.EventKind{AggregateType: r.env.AggregateType, EventType: r.env.EventType})
}

// batchOf makes a batch of rows in the order of their due times.
func batchOf(rows []*memRow) outbox.Batch {
	var b outbox.Batch
	if len(rows) == 0 {
		return b
	}
	b.Next = cursorOf(rows[len(rows)-1])
	slices.SortFunc(rows, oldestFirst)
	for _, r := range rows {
		if r.corrupt {
			b.Undecodable = append(b.Undecodable, outbox.Undecodable{EventID: r.env.EventID, Err: errHeaders})
		} else {
			b.Envelopes = append(b.Envelopes, r.envelope())
		}
	}
	return b
}

func cursorOf(r *memRow) outbox.Cursor {
	return outbox.Cursor{AvailableAt: r.AvailableAt, CreatedAt: r.CreatedAt, EventID: r.env.EventID}
}

// after reports whether the row is behind the cursor in the order of due times.
func (r *memRow) after(c outbox.Cursor) bool { return c.IsZero() || dueFirst(r, rowAt(c)) > 0 }

// upto reports whether the row is at the cursor or before it; all rows are if the cursor is zero.
func (r *memRow) upto(c outbox.Cursor) bool { return c.IsZero() || dueFirst(r, rowAt(c)) <= 0 }

// rowAt is a row at the place of a cursor.
func rowAt(c outbox.Cursor) *memRow {
	return &memRow{RawRow: RawRow{AvailableAt: c.AvailableAt, CreatedAt: c.CreatedAt}, env: outbox.Envelope{EventID: c.EventID}}
}

func (r *memRow) leased() bool { return r.LockedBy != "" }

// expired reports whether a lease's time is farther from now than a lease lasts.
func (r *memRow) expired(now time.Time, leaseDuration time.Duration) bool {
	return now.Sub(r.LockedAt).Abs() > leaseDuration
}

func first(rows []*memRow, limit int) []*memRow { return rows[:min(limit, len(rows))] }

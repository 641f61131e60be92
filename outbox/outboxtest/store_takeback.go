package outboxtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// TakeBack implements [outbox.Store]. TakeBack does not wait for open transactions: a row that another
// transaction changes counts as in hand.
func (s *Store) TakeBack(ctx context.Context, tx outbox.Execer, w outbox.Waiting, c outbox.Change) (n outbox.TakenBack, err error) {
	const doing = "changing"
	scope, _ := tx.(outbox.TxScope)
	if scope != nil && !scope.Active() {
		return n, s.fail(doing, outbox.ErrNoTransaction, w.EventIDs...)
	}
	if err := s.lock(ctx, doing, w.EventIDs...); err != nil {
		return n, err
	}
	rows, n := s.takeBack(scope, w, c)
	s.mu.Unlock()
	apply := func() { s.endTaking(rows, c.Cancel, func(r *memRow) { s.applyChange(r, c) }) }
	if scope == nil || len(rows) == 0 {
		apply()
		return n, nil
	}
	if err := join(scope, nil, apply, func() { s.endTaking(rows, c.Cancel, func(*memRow) {}) }); err != nil {
		return outbox.TakenBack{}, s.fail(doing, err, w.EventIDs...)
	}
	return n, nil
}

// takeBack locks the rows that wait, and counts them and the others.
func (s *Store) takeBack(scope outbox.TxScope, w outbox.Waiting, c outbox.Change) (rows []*memRow, n outbox.TakenBack) {
	seen := 0
	for _, r := range s.rows {
		if !r.isOf(w) || r.hidden && (scope == nil || r.writer != scope) || r.cancelled && r.taker == scope {
			continue
		}
		seen++
		switch {
		case r.Status == outbox.StatusDead:
			n.Dead++
		case r.Status == outbox.StatusDone:
			seen--
		case !r.isFree(scope) && (!c.Uncommitted || !r.hidden):
			n.InHand++
		default:
			r.taken, r.taker, r.cancelled = r.taken+1, scope, c.Cancel
			rows = append(rows, r)
			n.Changed++
		}
	}
	if c.Uncommitted {
		return rows, outbox.TakenBack{Changed: n.Changed}
	}
	n.Delivered = max(len(w.EventIDs)-seen, 0)
	return rows, n
}

// waits reports whether a transaction may take the row back.
func (r *memRow) waits() bool {
	return r.live() && !r.leased() && r.AvailableAt.After(r.CreatedAt)
}

// isFree reports whether a transaction may change the row, which may be a row of that transaction.
func (r *memRow) isFree(scope outbox.TxScope) bool {
	return r.waits() && !r.locked && !r.cancelled && (r.taken == 0 || r.taker == scope) && (!r.hidden || r.writer == scope)
}

func (r *memRow) isOf(w outbox.Waiting) bool {
	if len(w.EventIDs) > 0 {
		return slices.Contains(w.EventIDs, r.env.EventID)
	}
	return r.env.EventType == w.Kind.EventType && r.env.AggregateType == w.Kind.AggregateType && r.env.AggregateID == w.AggregateID &&
		(w.DueAfter.IsZero() || !r.AvailableAt.Before(w.DueAfter)) && (w.DueBefore.IsZero() || r.AvailableAt.Before(w.DueBefore))
}

// endTaking ends the change of rows with the transaction, or with the savepoint.
func (s *Store) endTaking(rows []*memRow, cancel bool, apply func(r *memRow)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		if r.taken--; cancel {
			r.cancelled = false
		}
		apply(r)
	}
}

func (s *Store) applyChange(r *memRow, c outbox.Change) {
	if c.Cancel {
		delete(s.rows, r.env.EventID)
		return
	}
	if c.Uncommitted {
		r.LockedBy, r.LockedAt = "", time.Time{}
	}
	if soonest := r.CreatedAt.Add(time.Microsecond); !c.AvailableAt.IsZero() {
		r.AvailableAt = c.AvailableAt
		if r.AvailableAt.Before(soonest) {
			r.AvailableAt = soonest
		}
	}
	if c.Content != nil {
		headers := maps.Clone(c.Content.Headers)
		for _, key := range []string{outbox.HeaderListener, outbox.HeaderEventID} { // of a row for one of several listeners
			if value := r.env.Headers[key]; value != "" {
				if headers == nil {
					headers = map[string]string{}
				}
				headers[key] = value
			}
		}
		r.env.Payload, r.env.Headers = c.Content.Payload, headers
	}
}

package outboxtest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// ReadRuns implements [outbox.RunReader].
func (s *Store) ReadRuns(ctx context.Context, _ outbox.DB, q outbox.RunQuery) (outbox.Runs, error) {
	if err := s.lock(ctx, "reading runs of events"); err != nil {
		return outbox.Runs{}, err
	}
	defer s.mu.Unlock()
	pending := s.visible(nextFirst, func(r *memRow) bool {
		return r.Status != outbox.StatusDone && compareKeys(r.key(), q.After) > 0
	})
	runs := outbox.Runs{Next: q.After, End: true}
	left := q.Limit
	for len(pending) > 0 {
		key := pending[0].key()
		n := slices.IndexFunc(pending, func(r *memRow) bool { return r.key() != key })
		if n < 0 {
			n = len(pending)
		}
		run, behind := s.run(q, pending[:n])
		pending = pending[n:]
		n = len(run)
		if q.Takeovers {
			n = min(n, 1)
		}
		if n > left {
			if len(runs.EventIDs) > 0 {
				runs.End = false
				return runs, nil
			}
			run = run[:left]
			n = left
		}
		runs.Next = key
		left -= n
		if len(run) > 0 {
			runs.EventIDs = append(runs.EventIDs, run)
			if q.Takeovers {
				runs.Behind = append(runs.Behind, behind)
			}
		}
	}
	return runs, nil
}

// BeginKeys implements [outbox.RunReader].
func (s *Store) BeginKeys(ctx context.Context, _ outbox.DB, eventIDs []string) (begin []string, err error) {
	if err := s.lock(ctx, "reading which events begin their keys"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	rows := s.visible(nextFirst, func(r *memRow) bool {
		return !r.Status.Terminal()
	})
	for i, r := range rows {
		if (i == 0 || rows[i-1].key() != r.key()) && slices.Contains(eventIDs, r.env.EventID) {
			begin = append(begin, r.env.EventID)
		}
	}
	return begin, nil
}

// CheckRuns implements [outbox.RunReader].
func (s *Store) CheckRuns(ctx context.Context, _ outbox.DB) error { return s.Check(ctx, nil, true) }

// run is the run of a key whose rows are given in order.
func (s *Store) run(q outbox.RunQuery, rows []*memRow) (run []string, behind []outbox.Lease) {
	now := s.clock()
	live := func(r *memRow) bool { return r.leased() && !r.expired(now, q.LeaseDuration) }
	if q.SkipDead {
		rows = slices.DeleteFunc(slices.Clone(rows), isDead)
	}
	fresh := slices.IndexFunc(rows, func(r *memRow) bool { return r.Status == outbox.StatusNew })
	if fresh >= 0 && live(rows[fresh]) {
		return nil, nil
	}
	rows = first(rows, q.Length)
	if slices.ContainsFunc(rows, live) {
		return nil, nil
	}
	for _, r := range rows {
		if isDead(r) || !r.due(q.Now, q.CreatedBefore) || r.isOneOf(q.Except) || r.leased() != q.Takeovers {
			break
		}
		run = append(run, r.env.EventID)
	}
	if len(run) == 0 || !q.Takeovers {
		return run, nil
	}
	for _, r := range rows[1:] {
		if r.leased() {
			behind = append(behind, outbox.Lease{EventID: r.env.EventID, Name: r.LockedBy})
		}
	}
	return run, behind
}

func (r *memRow) key() outbox.EventKey {
	return outbox.EventKey{AggregateType: r.env.AggregateType, ID: cmp.Or(r.env.AggregateID, r.env.EventID)}
}

func compareKeys(a, b outbox.EventKey) int {
	return cmp.Or(strings.Compare(string(a.AggregateType), string(b.AggregateType)), strings.Compare(a.ID, b.ID))
}

// nextFirst is the order of keys, and within a key the order of delivery.
func nextFirst(a, b *memRow) int {
	return cmp.Or(compareKeys(a.key(), b.key()), cmp.Compare(b.Status, a.Status), dueFirst(a, b))
}

package outbox_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// keyed is for now the memory store with ReadRuns.
type keyed struct{ *outboxtest.Store }

func (s *keyed) memory() *outboxtest.Store { return s.Store }

func (s *keyed) CheckRuns(context.Context, outbox.DB) error { return nil }

func (s *keyed) ReadRuns(_ context.Context, _ outbox.DB, q outbox.RunQuery) (outbox.Runs, error) {
	keys := map[outbox.EventKey][]outboxtest.Row{}
	for _, r := range s.Rows() {
		if r.Status == outbox.StatusDone || r.Status == outbox.StatusDead && q.SkipDead {
			continue
		}
		k := outbox.EventKey{AggregateType: r.Envelope.AggregateType, ID: cmp.Or(r.Envelope.AggregateID, r.Envelope.EventID)}
		keys[k] = append(keys[k], r)
	}
	var order []outbox.EventKey
	after := func(a, b outbox.EventKey) int {
		return cmp.Or(cmp.Compare(a.AggregateType, b.AggregateType), cmp.Compare(a.ID, b.ID))
	}
	for k := range keys {
		if q.After == (outbox.EventKey{}) || after(k, q.After) > 0 {
			order = append(order, k)
		}
	}
	slices.SortFunc(order, after)
	expired := func(r outboxtest.Row) bool { return r.LockedAt.Before(time.Now().Add(-q.LockTimeout)) }
	due := func(r outboxtest.Row) bool {
		return !r.AvailableAt.After(q.Now) && (q.CreatedBefore.IsZero() || !r.CreatedAt.After(q.CreatedBefore))
	}
	runs, n := outbox.Runs{End: true}, 0
next:
	for _, k := range order {
		rows := keys[k]
		slices.SortFunc(rows, func(a, b outboxtest.Row) int {
			return cmp.Or(cmp.Compare(b.Status, a.Status), a.AvailableAt.Compare(b.AvailableAt), a.CreatedAt.Compare(b.CreatedAt),
				strings.Compare(a.Envelope.EventID, b.Envelope.EventID))
		})
		rows = rows[:min(q.Length, len(rows))]
		last := runs.Next
		runs.Next = k
		if rows[0].Status == outbox.StatusDead || q.Takeovers != (rows[0].LockedBy != "") || !due(rows[0]) {
			continue
		}
		var behind []outbox.Lease
		for i, r := range rows {
			if r.LockedBy != "" && !expired(r) {
				continue next
			}
			if i > 0 && r.LockedBy != "" {
				behind = append(behind, outbox.Lease{EventID: r.Envelope.EventID, Name: r.LockedBy})
			}
		}
		var ids []string
		for i, r := range rows {
			if i > 0 && (q.Takeovers || r.LockedBy != "") || !due(r) {
				break
			}
			ids = append(ids, r.Envelope.EventID)
		}
		if n+len(ids) > q.Limit {
			runs.Next, runs.End = last, false
			break
		}
		runs.EventIDs = append(runs.EventIDs, ids)
		if q.Takeovers {
			runs.Behind = append(runs.Behind, behind)
		}
		if n += len(ids); n == q.Limit {
			runs.End = false
			break
		}
	}
	return runs, nil
}

package conformance

import (
	"context"
	"errors"
)

var adapterBystanderTests = []adapterTest{
	{name: "CancelledInNestedTransaction", run: func(s *adapterSuite) {
		count := 5
		if s.dialect == SQLite {
			count = 1 // one transaction at a time; the victim then ends while it waits for BEGIN
		}
		var txs []any
		var ids []string
		for range count {
			tx := s.begin()
			txs, ids = append(txs, tx), append(ids, s.write(s.ctx, tx))
		}
		var victims []string
		for range 3 {
			ctx, cancel := context.WithCancel(s.ctx)
			if s.dialect == SQLite {
				cancel()
			}
			if err := s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				victims = append(victims, s.write(ctx, tx))
				return s.RunInTx(ctx, func(ctx context.Context, tx any) error {
					victims = append(victims, s.write(ctx, tx))
					cancel()
					return ctx.Err()
				})
			}); !errors.Is(err, context.Canceled) {
				s.t.Errorf("the victim's RunInTx returned %v; want context.Canceled", err)
			}
			cancel()
		}
		for i, tx := range txs {
			ids = append(ids, s.write(s.ctx, tx))
			s.ok("Commit", s.Commit(tx))
			if s.calls.cause(ids[i]) != nil {
				s.t.Errorf("AfterRollback ran for a bystander: %v", s.calls.cause(ids[i]))
			}
		}
		s.settle(func() bool { return len(s.calls.committed()) == len(ids) && len(s.calls.rolledBack()) == len(victims) })
		s.sameEvents("AfterCommit", s.calls.committed(), ids)
		s.sameEvents("AfterRollback", s.calls.rolledBack(), victims)
		for _, id := range victims {
			s.wantDefinite(id)
		}
		s.rows(ids...)
	}},
}

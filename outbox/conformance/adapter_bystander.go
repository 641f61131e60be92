package conformance

import (
	"context"
	"fmt"
)

var adapterBystanderTests = []adapterTest{
	// Several transactions are open. Transactions whose context does not end are left alone.
	{name: "CancelledInNestedTransaction", run: func(s *adapterSuite) {
		count := 5
		if s.Dialect == SQLite {
			count = 1 // one transaction at a time: the victim's context ends while it waits for BEGIN
		}
		var bystanders []any
		var kept, undone []string
		for i := range count {
			kept = append(kept, fmt.Sprint("bystander-", i))
			bystanders = append(bystanders, s.begin(s.ctx, kept[i]))
		}
		for i := range 3 {
			ctx, cancel := context.WithCancel(s.ctx)
			if s.Dialect == SQLite {
				cancel()
			}
			wantError(s.t, "the victim's RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				outer, inner := fmt.Sprint("outer-", i), fmt.Sprint("inner-", i)
				s.write(ctx, tx, outer)
				undone = append(undone, outer, inner)
				return s.RunInTx(ctx, func(ctx context.Context, tx any) error {
					s.write(ctx, tx, inner)
					cancel()
					return ctx.Err()
				})
			}), context.Canceled)
			cancel()
		}
		for i, tx := range bystanders {
			id := fmt.Sprint("later-", i)
			kept = append(kept, id)
			s.write(s.ctx, tx, id)
			s.ok("Commit", s.Commit(tx))
		}
		s.wantCallsInAnyOrder(kept, undone)
		s.rows(kept...)
	}},
}

// Package outboxbun writes events in transactions of bun, whichever way they
// were opened.
//
//	db = outboxbun.Attach(db) // installs a query hook
//	a, err := outboxbun.New(db, ob.Writer())
//	…
//	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
//		if _, err := tx.NewInsert().Model(order).Exec(ctx); err != nil {
//			return err
//		}
//		_, err := a.Write(ctx, tx, orderPlaced)
//		return err
//	})
//
// After the commit the events go to their listeners at once. db.BeginTx, nested
// RunInTx and BeginTx, and savepoints written by hand work as well.
//
// bun passes a transaction's context along with BEGIN, COMMIT, ROLLBACK and the
// savepoint statements, and that is how the hook knows whose they are. So a
// nested transaction wants a context that comes from the outer one's, as
// RunInTx gives it. One with a foreign context is not known to the outbox:
// [Adapter.Write] refuses to write in it, and when it rolls back, what became of
// the events of the transactions open just then is left to the poller.
//
// bun 1.3.0 is the oldest version that works: earlier ones do not hand the
// transaction's context to RunInTx's function.
package outboxbun

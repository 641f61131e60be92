// Package outboxbun writes events in transactions of bun, whichever way they
// were begun.
//
//	pool, err := sqltx.Open("pgx", dsn) // instead of sql.Open; or sqltx.Watch(pool)
//	db := bun.NewDB(pool, pgdialect.New())
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
// After the commit the events go to their listeners at once. db.BeginTx, nested RunInTx and
// BeginTx, and savepoints written by hand work as well: the connection sees them, so package
// [github.com/outboxkit/outbox-go/adapters/sqltx] does the work, and the rules of sqltx hold here.
package outboxbun

// Package outboxpgx writes events in transactions of pgx, without database/sql.
//
//	pool, err := outboxpgx.Open(ctx, dsn) // instead of pgxpool.New
//	…
//	ob, err := outbox.New(outbox.Config{DB: outboxpgx.DB(pool), Store: sqlstore.Postgres()})
//	…
//	a, err := outboxpgx.New(pool, ob.Writer())
//	…
//	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := a.Write(ctx, tx, orderPlaced)
//		return err
//	})
//
// [Follow] puts a tracer into the configuration of a pool, or of a connection. The tracer sees each
// transaction begin, its savepoints, and its end. So any pgx.Tx will do, whoever began it: the
// pool, a connection, [pgx.BeginFunc], a batch with BeginTx, or sqlc's code.
//
// [Adapter.Queue] puts an event into the caller's [pgx.Batch]: the event then costs no round trip.
//
// Callbacks run before Commit or Rollback of a transaction of [Adapter.Begin] returns. For
// transactions that other code ends, callbacks run soon afterwards, on a separate goroutine.
package outboxpgx

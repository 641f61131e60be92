// Package sqltx writes events in transactions of database/sql.
//
//	db, err := sqltx.Open("pgx", dsn) // instead of sql.Open
//	…
//	a, err := sqltx.New(db, ob.Writer())
//	…
//	err = a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := a.Write(ctx, tx, orderPlaced)
//		return err
//	})
//
// [Open] opens a followed pool: its connections see each transaction begin, the statements and
// savepoints of the transaction, and its end. So any *sql.Tx of the pool will do, whoever began it:
// [Adapter.RunInTx], db.BeginTx, sqlc, ent, sqlx, bun or GORM. [OpenDB] and [WrapConnector] take a
// driver's connector. [Watch] makes a followed pool of a pool that other code has opened.
//
// Within RunInTx, further RunInTx calls are savepoints, and the context carries the transaction:
// code below can write with only the outbox's writer.
//
// Callbacks run before RunInTx returns, and before Commit or Rollback of a transaction of
// [Adapter.Begin] returns. For transactions that other code ends, callbacks run soon afterwards, on
// a separate goroutine.
package sqltx

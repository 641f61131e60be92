// Package sqltx writes events in transactions of database/sql.
//
//	a := sqltx.New(db, ob.Writer())
//	err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sqltx.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := a.Write(ctx, tx, orderPlaced)
//		return err
//	})
//
// [Tx] embeds *sql.Tx, so tx.Tx goes to code that knows only that type, and that
// code can hand it to [Adapter.Write] all the same. Within RunInTx, further
// RunInTx calls are savepoints, and the context carries the transaction: code
// below can write with nothing but the outbox's writer.
//
// Where the line that begins a transaction is not yours, as with sqlc, ent and
// older code, open the pool with [WrapConnector]: Write then takes the plain
// *sql.Tx.
//
//	db := sql.OpenDB(sqltx.WrapConnector(connector))
//	a := sqltx.New(db, ob.Writer())
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	_, err = a.Write(ctx, tx, orderPlaced)
//	err = tx.Commit()
//
// What the adapter cannot see without it: COMMIT and ROLLBACK called on the embedded *sql.Tx
// (the events' outcome is then unknown, and the poller finds out), and on MySQL a
// deadlock that a prepared statement or the rows of a query report and the
// caller swallows.
package sqltx

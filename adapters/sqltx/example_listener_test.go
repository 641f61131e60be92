package sqltx_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// stocks counts the databases: with an old driver, a database in memory may live for a moment after
// sql.DB.Close.
var stocks atomic.Int32

// openStock opens a database with the stock of a shop and an outbox.
func openStock() (*sql.DB, *outbox.Outbox, *sqltx.Adapter) {
	ctx := context.Background()
	db, err := sqltx.Open("sqlite", fmt.Sprintf("file:/stock%d?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate", stocks.Add(1)))
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE reserved (order_id TEXT)")
	check(err)
	store := sqlstore.SQLite()
	check(store.CreateSchema(ctx, db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	return db, ob, a
}

// deliver starts the outbox, commits an event, and closes it, which delivers the event.
// Then it prints what is reserved.
func deliver(db *sql.DB, ob *outbox.Outbox, a *sqltx.Adapter) {
	ctx := context.Background()
	check(ob.Start(ctx))
	check(a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.Write(ctx, tx, placed("o-1"))
		return err
	}))
	check(ob.Close(ctx))
	var n int
	check(db.QueryRowContext(ctx, "SELECT COUNT(*) FROM reserved").Scan(&n))
	fmt.Println("reserved:", n)
	check(db.Close())
}

// What the listener writes in its transaction happens exactly once.
func ExampleAdapter_Handle() {
	db, ob, a := openStock()
	reserve := a.Handle(func(ctx context.Context, tx *sql.Tx, env outbox.Envelope) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO reserved (order_id) VALUES (?)", env.AggregateID)
		return err
	})
	check(ob.Register(outbox.On("order", "order.placed", reserve)))
	deliver(db, ob, a)
	// Output:
	// reserved: 1
}

// Complete is for a listener that begins its own transaction, such as after a slow call
// that should not hold one.
func ExampleAdapter_Complete() {
	db, ob, a := openStock()
	reserve := outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		// … a call of the supplier, with env.EventID as its idempotency key
		return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO reserved (order_id) VALUES (?)", env.AggregateID); err != nil {
				return err
			}
			return a.Complete(ctx, tx)
		})
	})
	check(ob.Register(outbox.On("order", "order.placed", reserve)))
	deliver(db, ob, a)
	// Output:
	// reserved: 1
}

// Code below a middleware finds the transaction of the request.
func ExampleAdapter_TxFrom() {
	db, _, a := openStock()
	defer db.Close()
	reserve := func(ctx context.Context, order string) error {
		tx, ok := a.TxFrom(ctx)
		if !ok {
			return outbox.ErrNoTransaction
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO reserved (order_id) VALUES (?)", order)
		return err
	}
	fmt.Println(reserve(context.Background(), "o-1"))
	fmt.Println(outbox.InTx(context.Background(), a, func(ctx context.Context) error {
		return reserve(ctx, "o-1")
	}))
	// Output:
	// outbox: no active transaction
	// <nil>
}

// WriteAll writes all events or none, in one statement.
func ExampleAdapter_WriteAll() {
	db, _, a := openStock()
	defer db.Close()
	err := a.RunInTx(context.Background(), nil, func(ctx context.Context, tx *sql.Tx) error {
		ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{placed("o-1"), placed("o-2")})
		fmt.Println(len(ids), "events")
		return err
	})
	fmt.Println(err)
	// Output:
	// 2 events
	// <nil>
}

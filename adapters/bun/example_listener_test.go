package outboxbun_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// stocks counts the databases: with an old driver, a database in memory may live for a moment after
// sql.DB.Close.
var stocks atomic.Int32

// openStock opens a database with an outbox.
func openStock() (*bun.DB, *outbox.Outbox, *outboxbun.Adapter) {
	ctx := context.Background()
	pool, err := sqltx.Open("sqlite", fmt.Sprintf("file:/stock%d?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate", stocks.Add(1)))
	check(err)
	db := bun.NewDB(pool, sqlitedialect.New())
	_, err = db.NewCreateTable().Model((*order)(nil)).Exec(ctx)
	check(err)
	store, err := outboxbun.Store(db)
	check(err)
	check(store.CreateSchema(ctx, pool))
	ob, err := outbox.New(outbox.Config{DB: pool, Store: store})
	check(err)
	a, err := outboxbun.New(db, ob.Writer())
	check(err)
	return db, ob, a
}

// deliver starts the outbox, commits an event, and closes it, which delivers the event.
// Then it prints how many orders there are.
func deliver(db *bun.DB, ob *outbox.Outbox, a *outboxbun.Adapter) {
	ctx := context.Background()
	check(ob.Start(ctx))
	check(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := a.Write(ctx, tx, placed("o-1"))
		return err
	}))
	check(ob.Close(ctx))
	n, err := db.NewSelect().Model((*order)(nil)).Count(ctx)
	check(err)
	fmt.Println("orders:", n)
	check(db.Close())
}

// The adapter's Handle: what the listener writes in its transaction happens exactly once.
func ExampleAdapter_Handle() {
	db, ob, a := openStock()
	book := a.Handle(func(ctx context.Context, tx bun.Tx, env outbox.Envelope) error {
		_, err := tx.NewInsert().Model(&order{ID: env.AggregateID}).Exec(ctx)
		return err
	})
	check(ob.Register(outbox.On("order", "order.placed", book)))
	deliver(db, ob, a)
	// Output:
	// orders: 1
}

// Complete is for a listener that begins its own transaction, such as after a slow call
// that should not hold one.
func ExampleAdapter_Complete() {
	db, ob, a := openStock()
	book := outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&order{ID: env.AggregateID}).Exec(ctx); err != nil {
				return err
			}
			return a.Complete(ctx, tx)
		})
	})
	check(ob.Register(outbox.On("order", "order.placed", book)))
	deliver(db, ob, a)
	// Output:
	// orders: 1
}

// WriteAll writes all events or none, in one statement.
func ExampleAdapter_WriteAll() {
	db, _, a := openStock()
	defer db.Close()
	err := db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{placed("o-1"), placed("o-2")})
		fmt.Println(len(ids), "events")
		return err
	})
	fmt.Println(err)
	// Output:
	// 2 events
	// <nil>
}

// The store for the database that a bun.DB speaks to.
func ExampleStore() {
	db, _, _ := openStock()
	defer db.Close()
	store, err := outboxbun.Store(db)
	check(err)
	fmt.Println(store.Dialect(), store.Table())
	// Output:
	// sqlite outbox_event
}

// The adapter begins transactions for code that need not know bun, such as a middleware.
func ExampleAdapter_Begin() {
	db, ob, a := openStock()
	defer db.Close()
	ctx, tx, err := a.Begin(context.Background(), nil)
	check(err)
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	_, err = ob.Writer().Write(ctx, placed("o-1"))
	check(err)
	fmt.Println(tx.Commit())
	// Output:
	// <nil>
}

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// New reports all mistakes of a configuration together.
func ExampleNew() {
	store := outboxtest.NewStore() // or sqlstore.Postgres(), with your pool as DB
	_, err := outbox.New(outbox.Config{
		Store: store,
		Mode:  outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: -1}},
	})
	fmt.Println(err)

	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 8}},
	})
	fmt.Println(ob != nil, err)
	// Output:
	// outbox: Config.DB is required: a *sql.DB, or what embeds one
	// outbox: Config.Mode.Dispatch.Workers is -1; it must not be negative
	// true <nil>
}

// A pair of types has one listener, unless each of several has a name.
func ExampleOutbox_Register() {
	mail := func(context.Context, Order, outbox.Envelope) error { return nil }
	ob, _ := newShop(OrderPlaced.Listen(mail))

	err := ob.Register(OrderPlaced.Listen(mail))
	fmt.Println(errors.Is(err, outbox.ErrDuplicateListener))

	check(ob.Start(context.Background()))
	err = ob.Register(outbox.On("Order", "OrderPaid", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil })))
	fmt.Println(errors.Is(err, outbox.ErrStarted))
	check(ob.Close(context.Background()))
	// Output:
	// true
	// true
}

// Start checks the table. After an error it may be called again.
func ExampleOutbox_Start() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // of the start alone
	defer cancel()
	db, err := sqltx.Open("sqlite", "file:/start?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate")
	check(err)
	defer db.Close()
	store := sqlstore.SQLite()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: quiet})
	check(err)

	if err := ob.Start(ctx); err != nil {
		fmt.Println("not ready")           // err says what is missing and how to make it
		check(store.CreateSchema(ctx, db)) // usually a migration
	}
	fmt.Println(ob.Start(ctx))
	check(ob.Close(context.Background()))
	// Output:
	// not ready
	// <nil>
}

// Run is Start, a wait for the end of ctx, and Close. A service gives it a goroutine.
func ExampleOutbox_Run() {
	delivered := make(chan string)
	ob, _ := newShop(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		delivered <- o.ID
		return nil
	}))

	ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
	ended := make(chan error)
	go func() { ended <- ob.Run(ctx) }()
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println("delivered:", <-delivered)

	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// delivered: o-1
	// ended: <nil>
}

// Close delivers the events that are queued. Bound it, such as by the time that the
// platform gives a process to end.
func ExampleOutbox_Close() {
	ob, store := newShop(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error { return nil }))
	check(ob.Start(context.Background()))
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := ob.Close(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(store.Rows()[0].Status)
	// Output:
	// DONE
}

// Stats is for a health check or a dashboard.
func ExampleOutbox_Stats() {
	ob, _ := newShop()
	later := OrderPlaced.Envelope("o-2", Order{ID: "o-2"})
	later.DeliverAfter = time.Hour
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}), later)

	stats, err := ob.Stats(context.Background())
	check(err)
	fmt.Println("pending:", stats.Pending, "due:", stats.Due, "delayed:", stats.Delayed, "dead:", stats.Dead)
	// Output:
	// pending: 2 due: 1 delayed: 1 dead: 0
}

package outboxpgx_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type Order struct{ ID string }

var OrderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// openShop opens a followed pool, and makes an outbox and an adapter for it.
func openShop(ctx context.Context) (*pgxpool.Pool, *outbox.Outbox, *outboxpgx.Adapter) {
	pool, err := outboxpgx.Open(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	ob, err := outbox.New(outbox.Config{DB: outboxpgx.DB(pool), Store: sqlstore.Postgres()})
	check(err)
	a, err := outboxpgx.New(pool, ob.Writer())
	check(err)
	return pool, ob, a
}

// An order and its event are committed together, and the listener gets the event after
// the commit.
func Example() {
	ctx := context.Background()
	pool, err := outboxpgx.Open(ctx, os.Getenv("DATABASE_URL")) // instead of pgxpool.New
	check(err)
	defer pool.Close()
	db := outboxpgx.DB(pool)
	defer db.Close()
	store := sqlstore.Postgres()
	check(store.CreateSchema(ctx, db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		fmt.Println("mail for", o.ID)
		return nil
	})))
	check(ob.Start(ctx))
	defer func() { check(ob.Close(ctx)) }()

	a, err := outboxpgx.New(pool, ob.Writer())
	check(err)
	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", "o-1"); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, OrderPlaced.Envelope("o-1", Order{"o-1"}))
		return err
	}))
}

// A pool that your code configures becomes a followed one.
func ExampleFollow() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	check(err)
	config.MaxConns = 20
	outboxpgx.Follow(config.ConnConfig) // after a tracer of your own is set
	pool, err := pgxpool.NewWithConfig(ctx, config)
	check(err)
	defer pool.Close()
}

// Any transaction of the pool will do, whoever began it.
func ExampleAdapter_Write() {
	ctx := context.Background()
	pool, _, a := openShop(ctx)
	tx, err := pool.Begin(ctx)
	check(err)
	defer func() { _ = tx.Rollback(ctx) }() // after Commit it does nothing
	id, err := a.Write(ctx, tx, OrderPlaced.Envelope("o-1", Order{"o-1"}))
	check(err)
	check(tx.Commit(ctx))
	fmt.Println("committed", id)
}

// The event costs no round trip of its own: its INSERT is a statement of the batch.
func ExampleAdapter_Queue() {
	ctx := context.Background()
	pool, _, a := openShop(ctx)
	batch := new(pgx.Batch)
	batch.Queue("INSERT INTO orders (id) VALUES ($1)", "o-1")
	_, err := a.Queue(ctx, batch, OrderPlaced.Envelope("o-1", Order{"o-1"}))
	check(err)
	check(pool.SendBatch(ctx, batch).Close()) // one transaction
}

// Code that knows neither pgx nor the adapter writes with the context alone.
func ExampleAdapter_WithTx() {
	ctx := context.Background()
	pool, ob, a := openShop(ctx)
	place := func(ctx context.Context, o Order) error {
		_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope(o.ID, o))
		return err
	}
	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		ctx, err := a.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		return place(ctx, Order{"o-1"})
	}))
}

// The adapter begins transactions for code that need not know pgx, such as a middleware.
func ExampleAdapter_TxFrom() {
	ctx := context.Background()
	_, ob, a := openShop(ctx)
	check(outbox.InTx(ctx, a, func(ctx context.Context) error {
		tx, _ := a.TxFrom(ctx)
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", "o-1"); err != nil {
			return err
		}
		_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope("o-1", Order{"o-1"}))
		return err
	}))
}

// What the listener writes in its transaction happens exactly once.
func ExampleAdapter_Handle() {
	ctx := context.Background()
	_, ob, a := openShop(ctx)
	book := a.Handle(func(ctx context.Context, tx pgx.Tx, env outbox.Envelope) error {
		_, err := tx.Exec(ctx, "UPDATE stock SET reserved = reserved + 1 WHERE order_id = $1", env.AggregateID)
		return err
	})
	check(ob.Register(outbox.On("Order", "OrderPlaced", book)))
	check(ob.Run(ctx))
}

// Execer is for code that takes a transaction of database/sql, such as an inbox.
func ExampleExecer() {
	ctx := context.Background()
	pool, _, _ := openShop(ctx)
	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
	check(err)
	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := box.Once(ctx, outboxpgx.Execer(tx), "billing", "message-1", func(ctx context.Context) error {
			_, err := tx.Exec(ctx, "INSERT INTO charge (order_id, at) VALUES ($1, $2)", "o-1", time.Now())
			return err
		})
		return err
	}))
}

// WriteAll writes all events or none, in one statement.
func ExampleAdapter_WriteAll() {
	ctx := context.Background()
	pool, _, a := openShop(ctx)
	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := a.WriteAll(ctx, tx, []outbox.Envelope{
			OrderPlaced.Envelope("o-1", Order{"o-1"}),
			OrderPlaced.Envelope("o-2", Order{"o-2"}),
		})
		return err
	}))
}

// Complete is for a listener that begins its own transaction, such as after a slow call
// that should not hold one.
func ExampleAdapter_Complete() {
	ctx := context.Background()
	pool, ob, a := openShop(ctx)
	reserve := outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE stock SET reserved = reserved + 1 WHERE order_id = $1", env.AggregateID); err != nil {
				return err
			}
			return a.Complete(ctx, tx)
		})
	})
	check(ob.Register(outbox.On("Order", "OrderPlaced", reserve)))
	check(ob.Run(ctx))
}

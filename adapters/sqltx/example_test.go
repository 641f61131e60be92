package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// shop is a database with an outbox whose events the examples print. What became
// of them arrives on told, too, where it comes on a goroutine of its own.
type shop struct {
	db     *sql.DB
	writer *outbox.Writer
	dir    string
	told   chan struct{}
}

func openShop() *shop {
	dir, err := os.MkdirTemp("", "sqltx")
	check(err)
	db, err := sqltx.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	check(err)
	store := sqlstore.SQLite()
	check(store.CreateSchema(context.Background(), db))
	_, err = db.ExecContext(context.Background(), "CREATE TABLE orders (id TEXT)")
	check(err)
	told := make(chan struct{}, 10)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{{
		AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
			fmt.Println("committed:", envs[0].EventType, envs[0].AggregateID)
			told <- struct{}{}
		},
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, _ error) {
			fmt.Println("rolled back:", envs[0].EventType, envs[0].AggregateID)
			told <- struct{}{}
		},
	}}})
	check(err)
	writer := ob.Writer()
	return &shop{db: db, writer: writer, dir: dir, told: told}
}

func (s *shop) close() {
	check(s.db.Close())
	check(os.RemoveAll(s.dir))
}

func somebodysConnector() driver.Connector { return nothing{} }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func placed(order string) outbox.Envelope {
	return outbox.Envelope{
		EventType: "order.placed", AggregateType: "order", AggregateID: order,
		Payload: outbox.JSON(map[string]string{"order": order}),
	}
}

func ExampleAdapter_RunInTx() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a, err := sqltx.New(shop.db, shop.writer)
	check(err)
	err = a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", "o-1"); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, placed("o-1"))
		return err
	})
	fmt.Println("error:", err)
	// Output:
	// committed: order.placed o-1
	// error: <nil>
}

func ExampleAdapter_RunInTx_savepoint() {
	shop := openShop()
	defer shop.close()

	a, err := sqltx.New(shop.db, shop.writer)
	check(err)
	err = a.RunInTx(context.Background(), nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := a.Write(ctx, tx, placed("o-1")); err != nil {
			return err
		}
		err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := a.Write(ctx, tx, placed("o-2")); err != nil {
				return err
			}
			return errors.New("out of stock")
		})
		fmt.Println("the second order:", err)
		return nil
	})
	fmt.Println("error:", err)
	// Unordered output:
	// rolled back: order.placed o-2
	// the second order: out of stock
	// committed: order.placed o-1
	// error: <nil>
}

// Code that knows neither the adapter nor the database writes with the context
// alone.
func ExampleAdapter_Begin_ambient() {
	shop := openShop()
	defer shop.close()

	place := func(ctx context.Context, order string) error {
		_, err := shop.writer.Write(ctx, placed(order))
		return err
	}
	a, err := sqltx.New(shop.db, shop.writer)
	check(err)
	err = outbox.InTx(context.Background(), a, func(ctx context.Context) error {
		return place(ctx, "o-1")
	})
	fmt.Println("error:", err)
	fmt.Println("outside of a transaction:", errors.Is(place(context.Background(), "o-2"), outbox.ErrNoTransaction))
	// Output:
	// committed: order.placed o-1
	// error: <nil>
	// outside of a transaction: true
}

// Queries is as sqlc generates it: it knows *sql.Tx and no outbox.
type Queries struct{ tx *sql.Tx }

func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{tx: tx} }

func (q *Queries) CreateOrder(ctx context.Context, id string) error {
	_, err := q.tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id)
	return err
}

// Code that begins its own transactions stays as it is.
func ExampleAdapter_Write() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()
	a, err := sqltx.New(shop.db, shop.writer)
	check(err)
	queries := new(Queries)

	place := func(order string) error {
		tx, err := shop.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := queries.WithTx(tx).CreateOrder(ctx, order); err != nil {
			return err
		}
		if _, err := a.Write(ctx, tx, placed(order)); err != nil { // the one line per event
			return err
		}
		return tx.Commit()
	}
	check(place("o-1"))
	<-shop.told // the hooks run soon after Commit
	// Output:
	// committed: order.placed o-1
}

// The caller's own transaction goes into the context, and code below writes with
// nothing but the outbox's writer.
func ExampleAdapter_WithTx() {
	shop := openShop()
	defer shop.close()
	a, err := sqltx.New(shop.db, shop.writer)
	check(err)
	place := func(ctx context.Context, order string) error {
		_, err := shop.writer.Write(ctx, placed(order))
		return err
	}

	tx, err := shop.db.BeginTx(context.Background(), nil)
	check(err)
	ctx, err := a.WithTx(context.Background(), tx)
	check(err)
	check(place(ctx, "o-1"))
	check(tx.Commit())
	<-shop.told
	fmt.Println("after its end:", errors.Is(place(ctx, "o-2"), outbox.ErrNoTransaction))
	// Output:
	// committed: order.placed o-1
	// after its end: true
}

// A program that only receives a pool needs one line.
func ExampleWatch() {
	received := sql.OpenDB(somebodysConnector())
	defer func() { check(received.Close()) }()

	db := sqltx.Watch(received)
	defer func() { check(db.Close()) }() // received stays open
	fmt.Println(db.PingContext(context.Background()))
	// Output:
	// <nil>
}

// Package transactions_test has the code of docs/how-to/transactions.md.
package transactions_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type order struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

// place writes the event of an order in the transaction that ctx carries.
func place(ctx context.Context, events *outbox.Writer, o order) error {
	_, err := events.Write(ctx, orderPlaced.Envelope(o.ID, o))
	return err
}

var shops int

// shop is a database with an outbox.
type shop struct {
	dsn    string
	db     *sql.DB
	events *outbox.Writer
	a      *sqltx.Adapter
}

func openShop() *shop {
	shops++
	dsn := fmt.Sprintf("file:/shop-%d?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate", shops)
	db, err := sqltx.Open("sqlite", dsn)
	check(err)
	store := sqlstore.SQLite()
	check(store.CreateSchema(context.Background(), db))
	_, err = db.ExecContext(context.Background(), "CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT NOT NULL)")
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	return &shop{dsn, db, ob.Writer(), a}
}

func (s *shop) close() { check(s.db.Close()) }

// print prints the aggregates of the events that are in the table.
func (s *shop) print() {
	rows, err := s.db.QueryContext(context.Background(), "SELECT aggregate_id FROM outbox_event ORDER BY aggregate_id")
	check(err)
	defer rows.Close()
	for rows.Next() {
		var id string
		check(rows.Scan(&id))
		fmt.Println(id)
	}
	check(rows.Err())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func start(ctx context.Context, db *sql.DB, store *sqlstore.Store, ob *outbox.Outbox) error {
	if err := store.CreateSchema(ctx, db); err != nil { // or run the migrations
		return err
	}
	listener := orderPlaced.Listen(func(ctx context.Context, o order, env outbox.Envelope) error {
		return sendMail(ctx, env.EventID, o) // after the commit, at least once
	})
	if err := ob.Register(listener); err != nil {
		return err
	}
	return ob.Start(ctx) // at the end of the program: ob.Close(ctx)
}

func sendMail(_ context.Context, _ string, o order) error {
	fmt.Println("mail for", o.ID)
	return nil
}

// A service creates the tables, registers its listeners and starts the outbox.
func Example_start() {
	shop := openShop()
	defer shop.close()
	ctx, store := context.Background(), sqlstore.SQLite()
	ob, err := outbox.New(outbox.Config{DB: shop.db, Store: store})
	check(err)
	check(start(ctx, shop.db, store, ob))
	a, err := sqltx.New(shop.db, ob.Writer())
	check(err)
	check(outbox.InTx(ctx, a, func(ctx context.Context) error {
		return place(ctx, ob.Writer(), order{"o-1", "tea"})
	}))
	check(ob.Close(ctx)) // delivers what is queued
	// Output:
	// mail for o-1
}

// The adapter begins the transaction.
func Example_inTx() {
	shop := openShop()
	defer shop.close()
	ctx, a, events, o := context.Background(), shop.a, shop.events, order{"o-1", "tea"}

	err := outbox.InTx(ctx, a, func(ctx context.Context) error {
		tx, _ := a.TxFrom(ctx) // the *sql.Tx
		// on PostgreSQL: VALUES ($1, $2)
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item); err != nil {
			return err // rolls back
		}
		return place(ctx, events, o)
	})
	fmt.Println(err)
	shop.print()
	// Output:
	// <nil>
	// o-1
}

// Your code begins the transaction.
func Example_withTx() {
	shop := openShop()
	defer shop.close()
	db, a, events, o := shop.db, shop.a, shop.events, order{"o-1", "tea"}

	begin := func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		ctx, err = a.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		if err := place(ctx, events, o); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(begin(context.Background()))
	shop.print()
	// Output:
	// <nil>
	// o-1
}

// orders is a repository. Code that uses it sees no *sql.Tx.
type orders struct{ tx *sql.Tx }

func (r orders) Add(ctx context.Context, o order) error {
	// on PostgreSQL: VALUES ($1, $2)
	_, err := r.tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item)
	return err
}

// work is a unit of work: it begins the transaction, and gives repositories to a function.
type work struct{ a *sqltx.Adapter }

func (w work) Do(ctx context.Context, fn func(ctx context.Context, repo orders) error) error {
	return w.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return fn(ctx, orders{tx}) // or the library's own type for an existing *sql.Tx
	})
}

// Repositories hide the transaction.
func Example_unitOfWork() {
	shop := openShop()
	defer shop.close()
	ctx, unit, events, o := context.Background(), work{shop.a}, shop.events, order{"o-1", "tea"}

	err := unit.Do(ctx, func(ctx context.Context, repo orders) error {
		if err := repo.Add(ctx, o); err != nil {
			return err
		}
		_, err := events.Write(ctx, orderPlaced.Envelope(o.ID, o)) // in the transaction of ctx
		return err
	})
	fmt.Println(err)
	shop.print()
	// Output:
	// <nil>
	// o-1
}

// A job has no aggregate.
func Example_noAggregate() {
	shop := openShop()
	defer shop.close()
	ctx, a, events := context.Background(), shop.a, shop.events

	reportDue := outbox.NewTopic[string]("", "ReportDue")
	err := outbox.InTx(ctx, a, func(ctx context.Context) error {
		_, err := events.Write(ctx, reportDue.Envelope("", "2026-11"))
		return err
	})
	fmt.Println(err)
	fmt.Println(outbox.Global)
	var aggregate string
	check(shop.db.QueryRowContext(ctx, "SELECT aggregate_type FROM outbox_event").Scan(&aggregate))
	fmt.Println(aggregate)
	// Output:
	// <nil>
	// __GLOBAL__
	// __GLOBAL__
}

// Other code has opened the pool.
func Example_watch() {
	shop := openShop()
	defer shop.close()
	received, err := sql.Open("sqlite", shop.dsn)
	check(err)
	defer received.Close()
	newOutbox := func(pool *sql.DB) (*outbox.Outbox, *sqltx.Adapter, error) {
		db := sqltx.Watch(pool) // use db from here on, also for your transactions
		ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite()})
		if err != nil {
			return nil, nil, err
		}
		a, err := sqltx.New(db, ob.Writer())
		return ob, a, err
	}
	ob, a, err := newOutbox(received)
	check(err)
	fmt.Println(outbox.InTx(context.Background(), a, func(ctx context.Context) error {
		return place(ctx, ob.Writer(), order{"o-1", "tea"})
	}))
	shop.print()
	// Output:
	// <nil>
	// o-1
}

// Other code begins its transactions on a pool of its own.
func Example_allowUnmanaged() {
	shop := openShop()
	defer shop.close()
	ctx, o := context.Background(), order{"o-1", "tea"}
	theirs, err := sql.Open("sqlite", shop.dsn)
	check(err)
	defer theirs.Close()

	a, err := sqltx.New(shop.db, shop.events, sqltx.AllowUnmanaged()) // shop.db is followed
	check(err)
	tx, err := theirs.BeginTx(ctx, nil) // theirs is not
	check(err)
	_, err = a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o))
	check(err)
	check(tx.Commit()) // the poller delivers the event
	shop.print()
	// Output:
	// o-1
}

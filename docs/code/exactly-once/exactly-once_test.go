package exactlyonce_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type Order struct {
	ID   string `json:"id"`
	Item string `json:"item"`
}

var orderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func open(name string, statements ...string) *sql.DB {
	db, err := sqltx.Open("sqlite", "file:/"+name+"?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate")
	check(err)
	for _, statement := range statements {
		_, err := db.ExecContext(context.Background(), statement)
		check(err)
	}
	return db
}

// newOutbox makes an outbox on the database and an adapter for it.
func newOutbox(db *sql.DB) (*outbox.Outbox, *sqltx.Adapter) {
	store := sqlstore.SQLite()
	check(store.CreateSchema(context.Background(), db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	return ob, a
}

// deliver starts the outbox, commits an order, and closes it, which delivers the event.
func deliver(ob *outbox.Outbox, a *sqltx.Adapter) {
	ctx := context.Background()
	check(ob.Start(ctx))
	check(a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.Write(ctx, tx, orderPlaced.Envelope("o-1", Order{"o-1", "tea"}))
		return err
	}))
	check(ob.Close(ctx))
}

func number(db *sql.DB, query string) (n int) {
	check(db.QueryRowContext(context.Background(), query).Scan(&n))
	return n
}

func Example_handle() {
	db := open("handle", "CREATE TABLE stock (item TEXT, n INTEGER)", "INSERT INTO stock VALUES ('tea', 10)")
	defer db.Close()
	ob, a := newOutbox(db)
	err := ob.Register(outbox.On("Order", "OrderPlaced", a.Handle(
		func(ctx context.Context, tx *sql.Tx, env outbox.Envelope) error {
			o, err := orderPlaced.Decode(env)
			if err != nil {
				return outbox.Dead(err)
			}
			_, err = tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE item = ?", o.Item)
			return err
		})))
	check(err)
	deliver(ob, a)
	fmt.Println("in stock:", number(db, "SELECT n FROM stock"))
	// Output:
	// in stock: 9
}

// reserve stands for a call to another system.
func reserve(_ context.Context, key string, o Order) error {
	fmt.Println("reserve", o.Item, key != "")
	return nil
}

func Example_complete() {
	db := open("complete", "CREATE TABLE reserved (order_id TEXT)")
	defer db.Close()
	ob, a := newOutbox(db)
	err := ob.Register(orderPlaced.Listen(func(ctx context.Context, o Order, env outbox.Envelope) error {
		if err := reserve(ctx, env.EventID, o); err != nil { // no transaction is open meanwhile
			return err
		}
		return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO reserved (order_id) VALUES (?)", o.ID); err != nil {
				return err
			}
			return a.Complete(ctx, tx) // ctx is the listener's, or one made from it
		})
	}))
	check(err)
	deliver(ob, a)
	fmt.Println("reserved:", number(db, "SELECT COUNT(*) FROM reserved"))
	// Output:
	// reserve tea true
	// reserved: 1
}

func Example_inbox() {
	shop, billing := open("shop"), open("billing", "CREATE TABLE charges (order_id TEXT)")
	defer shop.Close()
	defer billing.Close()
	ctx := context.Background()

	box, err := inbox.New(inbox.Config{Dialect: inbox.SQLite})
	check(err)
	check(box.CreateSchema(ctx, billing)) // or ship box.Schema() with your migrations

	charge := func(ctx context.Context, o Order, env outbox.Envelope) error {
		tx, err := billing.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		first, err := box.Once(ctx, tx, "billing", env.EventID, func(ctx context.Context) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO charges (order_id) VALUES (?)", o.ID)
			return err
		})
		if err != nil || !first {
			return err // not the first time: the charge is there
		}
		return tx.Commit()
	}

	ob, a := newOutbox(shop)
	check(ob.Register(orderPlaced.Listen(func(ctx context.Context, o Order, env outbox.Envelope) error {
		for range 2 { // as if the outcome of the first delivery were lost
			if err := charge(ctx, o, env); err != nil {
				return err
			}
		}
		return nil
	})))
	deliver(ob, a)
	fmt.Println("charges:", number(billing, "SELECT COUNT(*) FROM charges"))
	// Output:
	// charges: 1
}

// Package concepts_test holds the Go code of docs/CONCEPTS.md.
package concepts_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type placedOrder struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[placedOrder]("Order", "OrderPlaced")

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	ctx := context.Background()
	db, err := sqltx.Open("sqlite", "file:/concepts?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate")
	check(err)
	defer db.Close()
	store := sqlstore.SQLite()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT, item TEXT)")
	check(errors.Join(err, store.CreateSchema(ctx, db)))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	check(ob.Register(orderPlaced.Listen(func(_ context.Context, o placedOrder, _ outbox.Envelope) error {
		fmt.Println("placed:", o.Item)
		return nil
	})))
	check(ob.Start(ctx))
	a, err := sqltx.New(db, ob.Writer())
	check(err)

	order := placedOrder{"o-1", "tea"}
	err = a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", order.ID, order.Item); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
	check(err)
	check(ob.Close(ctx))
	// Output:
	// placed: tea
}

// Package concepts_test holds the code of docs/CONCEPTS.md.
package concepts_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type orderRow struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[orderRow]("Order", "OrderPlaced")

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example_theOutbox() {
	ctx := context.Background()
	db, err := sqltx.Open("sqlite", "file:/concepts?vfs=memdb&_txlock=immediate")
	check(err)
	defer db.Close()
	store := sqlstore.SQLite()
	check(store.CreateSchema(ctx, db))
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT)")
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	check(ob.Register(orderPlaced.Listen(func(_ context.Context, o orderRow, _ outbox.Envelope) error {
		fmt.Println("mail for", o.Item)
		return nil
	})))
	check(ob.Start(ctx))
	a, err := sqltx.New(db, ob.Writer())
	check(err)

	order := orderRow{"o-1", "tea"}
	err = a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", order.ID); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
	check(err)
	check(ob.Close(ctx))
	// Output: mail for tea
}

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// An order and its event are committed together, and the listener gets the event after
// the commit. With PostgreSQL or MySQL only the driver and the store differ.
func Example() {
	ctx := context.Background()
	db, err := sqltx.Open("sqlite", "file:/shop?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate")
	must(err)
	defer db.Close()
	store := sqlstore.SQLite()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT)")
	must(errors.Join(err, store.CreateSchema(ctx, db)))

	type order struct{ ID, Item string }
	orderPlaced := outbox.NewTopic[order]("Order", "OrderPlaced")
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	must(err)
	must(ob.Register(orderPlaced.Listen(func(_ context.Context, o order, _ outbox.Envelope) error {
		fmt.Println("mail: your", o.Item, "is on its way")
		return nil
	})))
	must(ob.Start(ctx))

	shop, err := sqltx.New(db, ob.Writer())
	must(err)
	must(shop.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", "o-1"); err != nil {
			return err
		}
		_, err := shop.Write(ctx, tx, orderPlaced.Envelope("o-1", order{"o-1", "tea"}))
		return err
	}))
	must(ob.Close(ctx)) // delivers what is queued
	// Output:
	// mail: your tea is on its way
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}

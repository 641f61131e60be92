// Plain writes an order and an event with database/sql, and delivers the event.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type order struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

func run(ctx context.Context, db *sql.DB) error { // db is from sqltx.Open("pgx", address)
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.Postgres()})
	if err != nil {
		return err
	}
	a, err := sqltx.New(db, ob.Writer())
	if err := errors.Join(err, ob.Register(orderPlaced.Listen(sendMail))); err != nil {
		return err
	}
	if err := ob.Start(ctx); err != nil {
		return err
	}
	defer ob.Close(ctx) // delivers the queued events
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ('o-1', 'tea')"); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope("o-1", order{"o-1", "tea"}))
		return err
	})
}

func sendMail(_ context.Context, o order, env outbox.Envelope) error {
	log.Printf("sending a mail for order %s of %s (event %s)", o.ID, o.Item, env.EventID)
	return nil // after an error the event is delivered again
}

func main() {
	ctx := context.Background()
	db, err := sqltx.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT, item TEXT)")
	if err := errors.Join(err, sqlstore.Postgres().CreateSchema(ctx, db), run(ctx, db), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// Package readme holds the README's example, so that it compiles.
package readme

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Serve is the example, for the test to run.
var Serve = serve

// Mails gets what the example's listener sends.
var Mails = make(chan OrderPlaced, 1)

func sendMail(_ context.Context, _ string, o OrderPlaced) error {
	Mails <- o
	return nil
}

// What follows is the README's block, to the letter.

type OrderPlaced struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[OrderPlaced]("Order", "OrderPlaced")

func serve(ctx context.Context, db *sql.DB) error {
	store, err := sqlstore.Detect(ctx, db) // or sqlstore.Postgres(), MySQL(), SQLite()
	if err != nil {
		return err
	}
	if err := store.CreateSchema(ctx, db); err != nil { // or ship store.Schema() with your migrations
		return err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	if err != nil {
		return err
	}
	err = ob.Register(orderPlaced.Listen(func(ctx context.Context, o OrderPlaced, env outbox.Envelope) error {
		return sendMail(ctx, env.EventID, o) // called after the commit, at least once
	}))
	if err != nil {
		return err
	}
	if err := ob.Start(ctx); err != nil {
		return err
	}
	defer ob.Close(context.WithoutCancel(ctx))

	a := sqltx.New(db, ob.Writer())
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sqltx.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ('o-1', 'tea')"); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope("o-1", OrderPlaced{"o-1", "tea"}))
		return err
	})
}

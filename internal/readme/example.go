// Package readme holds the README's example, so that it compiles.
package readme

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Serve is the example, for the test to run.
var Serve = serve

// Mails gets the items that the example's listener writes of.
var Mails = make(chan string, 1)

func sendMail(_ context.Context, _ string, o order) error {
	Mails <- o.Item
	return nil
}

// What follows is the README's block, to the letter.

type order struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

func serve(ctx context.Context, db *sql.DB) error { // db is from sqltx.Open
	store, err := sqlstore.Detect(ctx, db)
	if err != nil {
		return err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	if err != nil {
		return err
	}
	listener := orderPlaced.Listen(func(ctx context.Context, o order, env outbox.Envelope) error {
		return sendMail(ctx, env.EventID, o) // after the commit, at least once
	})
	a, err := sqltx.New(db, ob.Writer())
	if err := errors.Join(err, store.CreateSchema(ctx, db), ob.Register(listener)); err != nil {
		return err
	}
	if err := ob.Start(ctx); err != nil {
		return err
	}
	defer ob.Close(ctx) // delivers what is queued

	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ('o-1', 'tea')"); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope("o-1", order{"o-1", "tea"}))
		return err
	})
}

// Package main is the service with an outbox.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/size"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func main() { slog.Error("the service ended", "error", run(context.Background())) }

func run(ctx context.Context) error {
	db, err := sqltx.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	store := sqlstore.Postgres()
	placed := outbox.NewTopic[size.Order]("Order", "OrderPlaced")
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	if err != nil {
		return err
	}
	err = errors.Join(store.CreateSchema(ctx, db), ob.Register(placed.Listen(deliver)), ob.Start(ctx))
	if err != nil {
		return err
	}
	adapter, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return err
	}
	err = size.Serve(db, func(ctx context.Context, tx *sql.Tx, o size.Order) error {
		_, err := adapter.Write(ctx, tx, placed.Envelope(o.ID, o))
		return errors.Join(err, size.Insert(ctx, tx, o))
	})
	return errors.Join(err, ob.Close(ctx))
}

func deliver(ctx context.Context, o size.Order, _ outbox.Envelope) error {
	slog.InfoContext(ctx, "placed", "order", o.ID)
	return nil
}

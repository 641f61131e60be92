// Package main is the service with an outbox and its dashboard.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/docs/code/size"
	"github.com/outboxkit/outbox-go/httptx"
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
	page, err := dashboard.New(dashboard.Config{Outboxes: map[string]*outbox.Outbox{"shop": ob}, Access: httptx.Access{Authorize: roleOf}})
	if err != nil {
		return err
	}
	http.Handle("/outbox/", http.StripPrefix("/outbox", page))
	err = size.Serve(db, func(ctx context.Context, tx *sql.Tx, o size.Order) error {
		_, err := adapter.Write(ctx, tx, placed.Envelope(o.ID, o))
		return errors.Join(err, size.Insert(ctx, tx, o))
	})
	return errors.Join(err, page.Wait(ctx), ob.Close(ctx))
}

func roleOf(*http.Request) (user string, role httptx.Role) { return "", httptx.View }

func deliver(ctx context.Context, o size.Order, _ outbox.Envelope) error {
	slog.InfoContext(ctx, "placed", "order", o.ID)
	return nil
}

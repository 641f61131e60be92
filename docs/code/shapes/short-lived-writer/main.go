// The program of docs/shapes/short-lived-writer.md: it writes events and ends.
package main

import (
	"context"
	"database/sql"
	"errors"
	"os"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// importOrders writes orders and their events. It starts nothing in the background.
func importOrders(ctx context.Context, db *sql.DB, ids []string) (err error) {
	notifier, err := pgnotify.New(db) // wakes the workers at the commit
	if err != nil {
		return err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.Postgres(), Mode: outbox.WriterOnly{}, Notifier: notifier})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ob.Close(context.WithoutCancel(ctx))) }()
	a, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := service.Place(ctx, a, service.Order{ID: id, Item: "tea"}); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	service.Main(func(ctx context.Context, db *sql.DB) error { return importOrders(ctx, db, os.Args[1:]) })
}

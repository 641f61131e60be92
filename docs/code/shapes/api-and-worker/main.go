// The program of docs/shapes/api-and-worker.md: an API that writes events, and a worker that delivers
// them.
package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// api writes events. A worker delivers them.
func api(ctx context.Context, db *sql.DB, l net.Listener) error {
	ob, err := newOutbox(db, outbox.WriterOnly{})
	if err != nil {
		return err
	}
	a, err := sqltx.New(db, ob.Writer())
	if err := errors.Join(err, ob.Start(ctx)); err != nil {
		return err
	}
	err = service.Serve(ctx, l, service.Orders(a))
	return errors.Join(err, ob.Close(context.WithoutCancel(ctx)))
}

// worker delivers the events of the API until ctx ends.
func worker(ctx context.Context, db *sql.DB) error {
	ob, err := newOutbox(db, outbox.MultiNode{})
	if err != nil {
		return err
	}
	if err := ob.Register(service.OrderPlaced.Listen(service.SendMail)); err != nil {
		return err
	}
	return ob.Run(ctx)
}

func newOutbox(db *sql.DB, mode outbox.Mode) (*outbox.Outbox, error) {
	notifier, err := pgnotify.New(db) // the API's commit wakes a worker
	if err != nil {
		return nil, err
	}
	return outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(), Mode: mode, Notifier: notifier,
		Purge: &outbox.PurgeOptions{},
	})
}

func main() {
	service.Main(func(ctx context.Context, db *sql.DB) error {
		if len(os.Args) > 1 && os.Args[1] == "worker" {
			return worker(ctx, db)
		}
		return api(ctx, db, service.Listen(ctx, "8080"))
	})
}

// The program of docs/shapes/one-service.md: a service that writes events and delivers them.
package main

import (
	"context"
	"database/sql"
	"errors"
	"net"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// serve answers requests and delivers their events until ctx ends.
func serve(ctx context.Context, db *sql.DB, l net.Listener) error {
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(),
		Mode:  outbox.MultiNode{},     // each replica delivers
		Purge: &outbox.PurgeOptions{}, // deletes delivered rows after a week
	})
	if err != nil {
		return err
	}
	a, err := sqltx.New(db, ob.Writer())
	if err := errors.Join(err, ob.Register(service.OrderPlaced.Listen(service.SendMail))); err != nil {
		return err
	}
	if err := ob.Start(ctx); err != nil {
		return err
	}
	err = service.Serve(ctx, l, service.Orders(a)) // a request writes an order and an event
	return errors.Join(err, ob.Close(context.WithoutCancel(ctx)))
}

func main() {
	service.Main(func(ctx context.Context, db *sql.DB) error { return serve(ctx, db, service.Listen(ctx, "8080")) })
}

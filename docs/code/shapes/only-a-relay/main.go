// The program of docs/shapes/only-a-relay.md: a service that publishes events to NATS.
package main

import (
	"context"
	"database/sql"
	"errors"
	"os"

	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

// publish takes the events of the table to a broker until ctx ends.
func publish(ctx context.Context, db *sql.DB, broker relay.Publisher) error {
	r, err := relay.New(relay.Config{
		Publisher: broker,
		Source:    "/shop",
		Routes:    []relay.Route{relay.To("orders.placed", service.OrderPlaced.Kind())},
	})
	if err != nil {
		return err
	}
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(),
		Mode:  outbox.MultiNode{}, // or OrderedByKey, for order within each aggregate
		Purge: &outbox.PurgeOptions{OnDone: outbox.Delete},
	})
	if err != nil {
		return err
	}
	if err := ob.Register(r.Bindings()...); err != nil {
		return err
	}
	err = ob.Run(ctx)
	return errors.Join(err, r.Close(context.WithoutCancel(ctx)))
}

func main() {
	service.Main(func(ctx context.Context, db *sql.DB) error {
		broker, err := relaynats.New(relaynats.Config{URL: os.Getenv("NATS_URL")})
		if err != nil {
			return err
		}
		return publish(ctx, db, broker)
	})
}

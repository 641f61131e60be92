// The program of docs/shapes/worker-fleet.md: groups of workers, each for some kinds of events.
package main

import (
	"context"
	"database/sql"
	"os"
	"time"

	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// orderShipped is delivered by another group of workers.
var orderShipped = outbox.NewTopic[service.Order]("Order", "OrderShipped")

// mail delivers the orders that were placed, 50 in a second in all processes of this group together.
func mail(ctx context.Context, db *sql.DB) error {
	return worker(ctx, db, service.OrderPlaced.Listen(service.SendMail), map[outbox.EventKind]outbox.Rules{
		service.OrderPlaced.Kind(): {Rate: 50, Fleetwide: true},
	})
}

// shipping delivers the orders that were shipped.
func shipping(ctx context.Context, db *sql.DB) error {
	return worker(ctx, db, orderShipped.Listen(service.SendMail), nil)
}

// worker delivers the kinds that have a listener here until ctx ends.
func worker(ctx context.Context, db *sql.DB, listener outbox.Binding, rules map[outbox.EventKind]outbox.Rules) error {
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(),
		Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 32, ListenerTimeout: 30 * time.Second, Rules: rules},
			Claim:    outbox.ClaimOptions{LeaseDuration: 2 * time.Minute},
		},
	})
	if err != nil {
		return err
	}
	if err := ob.Register(listener); err != nil {
		return err
	}
	return ob.Run(ctx)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "shipping" {
		service.Main(shipping)
		return
	}
	service.Main(mail)
}

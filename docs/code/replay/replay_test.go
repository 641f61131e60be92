// Package replay_test has the code of docs/how-to/replay.md.
package replay_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

type order struct{ ID string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

// bind registers the listeners of an order. The listener search is new.
func bind(ob *outbox.Outbox, mail, search func(order) error) error {
	return ob.Register(
		orderPlaced.Listen(func(_ context.Context, o order, _ outbox.Envelope) error {
			return mail(o)
		}, outbox.Named("mail")),
		orderPlaced.Listen(func(_ context.Context, o order, _ outbox.Envelope) error {
			return search(o)
		}, outbox.Named("search")),
	)
}

// fillSearch gives the new listener the orders of the last day before it was deployed.
func fillSearch(ctx context.Context, ob *outbox.Outbox, deployed time.Time) error {
	return ob.StartReplay(ctx, outbox.Replay{
		Name: "fill-search", Listener: "search",
		AggregateType: "Order", EventTypes: []outbox.EventType{"OrderPlaced"},
		Since: deployed.Add(-24 * time.Hour), Until: deployed,
		Rate: 200, Reason: "a new search index",
	})
}

// report prints how far the replays are.
func report(ctx context.Context, ob *outbox.Outbox) error {
	list, err := ob.Replays(ctx)
	for _, r := range list {
		fmt.Printf("%s: %s, %d added, %d waiting\n", r.Name, r.State, r.Added, r.Waiting)
	}
	return err
}

func Example() {
	ctx, store := context.Background(), outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	check(bind(ob, func(order) error { return nil }, func(order) error { return nil }))
	check(fillSearch(ctx, ob, time.Now()))
	check(report(ctx, ob))
	check(ob.StopReplay(ctx, "fill-search"))
	check(report(ctx, ob))
	check(ob.Close(ctx))
	// Output:
	// fill-search: running, 0 added, 0 waiting
	// fill-search: stopped, 0 added, 0 waiting
}

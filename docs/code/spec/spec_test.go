// Package spec_test holds the Go code of docs/SPEC.md.
package spec_test

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

const OrderPlaced outbox.EventType = "OrderPlaced"

type placedOrder struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[placedOrder]("Order", OrderPlaced)

func onOrderPlaced(context.Context, placedOrder, outbox.Envelope) error { return nil }

func Example_construction() {
	order := placedOrder{"o-1", "tea"}
	env := outbox.Envelope{
		EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1",
		Payload: outbox.JSON(order),
	}
	fmt.Println(env.EventType, env.AggregateID, env.IsDelayed(), env.Validate())
	env = orderPlaced.Envelope("o-1", order)
	fmt.Println(env.EventType, env.AggregateID, env.IsDelayed(), env.Validate())
	env = outbox.Envelope{
		EventType: "ReminderDue", Payload: outbox.RawJSON(`{"id":1}`),
		DeliverAfter: 24 * time.Hour,
	}
	fmt.Println(env.EventType, env.AggregateID, env.IsDelayed(), env.Validate())
	// Output:
	// OrderPlaced o-1 false <nil>
	// OrderPlaced o-1 false <nil>
	// ReminderDue  true <nil>
}

func Example_composite() {
	store := outboxtest.NewStore()
	db := store.DB()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{Workers: 8, HotCapacity: 2000},
	}})
	fmt.Println(ob != nil, err)
	// Output:
	// true <nil>
}

func Example_lifecycle() {
	ctx, end := context.WithCancel(context.Background())
	end()
	store := outboxtest.NewStore()
	fmt.Println(serve(ctx, store.DB(), store))
	// Output:
	// outbox: starting: context canceled
}

func serve(ctx context.Context, db outbox.DB, store outbox.Store) error {
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}})
	if err != nil {
		return err
	}
	if err := ob.Register(orderPlaced.Listen(onOrderPlaced)); err != nil {
		return err
	}
	return ob.Run(ctx) // Start, then Close when ctx ends
}

package payloads_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// Order is the second version of the payload. The first one had "total", in whole euros.
type Order struct {
	ID       string `json:"id"`
	Cents    int    `json:"cents"`
	Currency string `json:"currency"`
}

// UnmarshalJSON reads both versions.
func (o *Order) UnmarshalJSON(data []byte) error {
	type current Order // the same fields, without this method
	var both struct {
		current
		Total *int `json:"total"` // of the first version
	}
	if err := json.Unmarshal(data, &both); err != nil {
		return err
	}
	if both.Total != nil {
		both.Cents, both.Currency = *both.Total*100, "EUR"
	}
	*o = Order(both.current)
	return nil
}

var orderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

func Example_upcasting() {
	first := outbox.Envelope{
		AggregateType: "Order", EventType: "OrderPlaced", AggregateID: "o-1",
		Payload: outbox.RawJSON(`{"id": "o-1", "total": 42}`), // as a row of the last release has it
	}
	second := orderPlaced.Envelope("o-2", Order{ID: "o-2", Cents: 999, Currency: "CHF"})
	deliver(orderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		fmt.Println(o.ID, o.Cents, o.Currency)
		return nil
	}), first, second)
	// Unordered output:
	// o-1 4200 EUR
	// o-2 999 CHF
}

// orderV1 is the payload of the old event type.
type orderV1 struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

var (
	oldOrderPlaced = outbox.NewTopic[orderV1]("Order", "OrderPlaced")
	newOrderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced.v2")
)

// listeners handle both event types with one function.
func listeners(ship func(ctx context.Context, o Order, env outbox.Envelope) error) []outbox.Binding {
	return []outbox.Binding{
		newOrderPlaced.Listen(ship),
		oldOrderPlaced.Listen(func(ctx context.Context, old orderV1, env outbox.Envelope) error {
			return ship(ctx, Order{ID: old.ID, Cents: old.Total * 100, Currency: "EUR"}, env)
		}),
	}
}

func Example_newEventType() {
	bindings := listeners(func(_ context.Context, o Order, env outbox.Envelope) error {
		fmt.Println(env.EventType, o.Cents, o.Currency)
		return nil
	})
	deliver(bindings[0], newOrderPlaced.Envelope("o-2", Order{ID: "o-2", Cents: 999, Currency: "CHF"}))
	deliver(bindings[1], oldOrderPlaced.Envelope("o-1", orderV1{ID: "o-1", Total: 42}))
	// Output:
	// OrderPlaced.v2 999 CHF
	// OrderPlaced 4200 EUR
}

package relay_test

import (
	"context"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
)

// printer is a [relay.Publisher] that prints. Packages relay/kafka, relay/nats and others
// have those for brokers.
type printer struct{}

func (printer) Publish(_ context.Context, messages []relay.Message) []error {
	for _, m := range messages {
		fmt.Println(m.Topic, m.Key, m.ID, string(m.Body))
	}
	return nil // all are acknowledged
}

func (printer) Ping(context.Context) error  { return nil }
func (printer) Close(context.Context) error { return nil }

var orderPlaced = outbox.NewTopic[string]("Order", "OrderPlaced")

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Events that are committed are published. An event is done when the broker has it.
func Example() {
	ctx := context.Background()
	r, err := relay.New(relay.Config{
		Publisher: printer{},
		Source:    "/shop",
		Routes:    []relay.Route{relay.To("orders", orderPlaced.Kind())},
	})
	check(err)
	store := outboxtest.NewStore() // or sqlstore.Postgres(), with your pool as DB
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	check(err)
	check(ob.Register(r.Bindings()...))
	check(ob.Start(ctx))

	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		env := orderPlaced.Envelope("o-1", "tea")
		env.EventID = "e-1"
		_, err := ob.Writer().Write(ctx, env)
		return err
	}))
	check(ob.Close(ctx)) // publishes what is queued
	check(r.Close(ctx))
	// Output:
	// orders o-1 orders:/shop:e-1 "tea"
}

// A route may choose the topic and the key of each event.
func ExampleRoute() {
	r, err := relay.New(relay.Config{
		Publisher: printer{},
		Format:    relay.Plain, // no CloudEvents
		Routes: []relay.Route{{
			Kinds:   []outbox.EventKind{orderPlaced.Kind()},
			TopicOf: func(env outbox.Envelope) (string, error) { return "orders." + env.TenantID, nil },
			KeyOf:   func(env outbox.Envelope) string { return env.TenantID + "/" + env.AggregateID },
		}},
	})
	check(err)
	env := orderPlaced.Envelope("o-1", "tea")
	env.EventID, env.TenantID = "e-1", "acme"
	fmt.Println(r.Publish(context.Background(), []outbox.Envelope{env}))
	// Output:
	// orders.acme acme/o-1 orders.acme::e-1 "tea"
	// [<nil>]
}

// A relay with a name is one of several listeners of an event.
func ExampleRelay_Bindings() {
	r, err := relay.New(relay.Config{
		Publisher: printer{}, Source: "/shop",
		Routes: []relay.Route{relay.To("orders", orderPlaced.Kind())},
	})
	check(err)
	mail := orderPlaced.Listen(func(context.Context, string, outbox.Envelope) error { return nil }, outbox.Named("mail"))
	registry := outbox.NewRegistry()
	check(registry.Register(append(r.Bindings(outbox.Named("broker")), mail)...))
	fmt.Println(registry.Len(), "listeners")
	// Output:
	// 2 listeners
}

// Publish is for a program that reads the table itself, such as change data capture.
func ExampleRelay_Publish() {
	ctx := context.Background()
	r, err := relay.New(relay.Config{
		Publisher: printer{}, Source: "/shop",
		Routes: []relay.Route{relay.To("orders", orderPlaced.Kind())},
	})
	check(err)
	defer func() { check(r.Close(ctx)) }()
	env := orderPlaced.Envelope("o-1", "tea")
	env.EventID = "e-1"
	for _, result := range r.Publish(ctx, []outbox.Envelope{env}) {
		fmt.Println(result)
	}
	// Output:
	// orders o-1 orders:/shop:e-1 "tea"
	// <nil>
}

// A structured message is a CloudEvent as a whole; a binary one has it in its headers.
func ExampleMessage_HeaderList() {
	m := relay.Message{
		ContentType: "application/json",
		Attributes:  []relay.Attribute{{Name: "id", Value: "e-1"}, {Name: "source", Value: "/shop"}},
		Headers:     map[string]string{"traceparent": "00-1"},
	}
	for _, h := range m.HeaderList("ce-", "content-type") {
		fmt.Println(h.Key, h.Value)
	}
	// Output:
	// ce-id e-1
	// ce-source /shop
	// content-type application/json
	// traceparent 00-1
}

// A health check asks the broker.
func ExampleRelay_Ping() {
	r, err := relay.New(relay.Config{
		Publisher: printer{}, Source: "/shop",
		Routes: []relay.Route{relay.To("orders", orderPlaced.Kind())},
	})
	check(err)
	fmt.Println(r.Ping(context.Background()))
	// Output:
	// <nil>
}

// New reports all mistakes of a configuration together.
func ExampleNew() {
	_, err := relay.New(relay.Config{Publisher: printer{}, Routes: []relay.Route{relay.To("", orderPlaced.Kind())}})
	fmt.Println(err)
	// Output:
	// outbox: relay.Config.Routes[0].Topic is empty; name the topic, or set TopicOf
	// outbox: relay.Config.Source is empty; CloudEvents need one, such as "/orders", or take the format relay.Plain
}

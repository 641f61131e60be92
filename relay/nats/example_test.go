package relaynats_test

import (
	"context"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

// Committed orders go to the subject orders.placed, which a stream of JetStream covers.
func Example() {
	ctx := context.Background()
	publisher, err := relaynats.New(relaynats.Config{
		URL:     "nats://nats-1:4222,nats://nats-2:4222",
		Options: []nats.Option{nats.UserCredentials("orders.creds")},
	})
	check(err)
	orderPlaced := outbox.NewTopic[string]("Order", "OrderPlaced")
	r, err := relay.New(relay.Config{
		Publisher: publisher,
		Source:    "/shop",
		Routes:    []relay.Route{relay.To("orders.placed", orderPlaced.Kind())},
	})
	check(err)
	defer func() { check(r.Close(ctx)) }() // after the outbox

	store := outboxtest.NewStore() // or sqlstore.Postgres(), with your pool as DB
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	check(err)
	check(ob.Register(r.Bindings()...))
	check(ob.Run(ctx)) // publishes until ctx ends
}

// Ping is for a health check.
func ExamplePublisher_Ping() {
	publisher, err := relaynats.New(relaynats.Config{
		URL: "nats://127.0.0.1:4222",
	})
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := publisher.Ping(ctx); err != nil {
		log.Print("the broker is away; events wait in the outbox: ", err)
	}
	check(publisher.Close(context.Background()))
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

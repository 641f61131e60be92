package relayrabbitmq_test

import (
	"context"
	"log"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
	relayrabbitmq "github.com/outboxkit/outbox-go/relay/rabbitmq"
)

// Committed orders go to the exchange shop, with the routing key orders.placed.
func Example() {
	ctx := context.Background()
	publisher, err := relayrabbitmq.New(relayrabbitmq.Config{
		URLs:     []string{"amqp://shop:secret@rabbit-1:5672/", "amqp://shop:secret@rabbit-2:5672/"},
		Exchange: "shop",
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
	publisher, err := relayrabbitmq.New(relayrabbitmq.Config{
		URLs:     []string{"amqp://shop@rabbitmq:5672/"},
		Exchange: "shop",
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

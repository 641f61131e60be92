package relaypubsub_test

import (
	"context"
	"log"
	"time"

	"google.golang.org/api/option"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
	relaypubsub "github.com/outboxkit/outbox-go/relay/pubsub"
)

// Committed orders go to the topic orders. The order's id is the ordering key.
func Example() {
	ctx := context.Background()
	publisher, err := relaypubsub.New(relaypubsub.Config{
		Project: "shop-123456",
		Options: []option.ClientOption{option.WithEndpoint("europe-west1-pubsub.googleapis.com:443")},
	})
	check(err)
	orderPlaced := outbox.NewTopic[string]("Order", "OrderPlaced")
	r, err := relay.New(relay.Config{
		Publisher: publisher,
		Source:    "/shop",
		Routes:    []relay.Route{relay.To("orders", orderPlaced.Kind())},
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
	publisher, err := relaypubsub.New(relaypubsub.Config{Project: "shop-123456"})
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

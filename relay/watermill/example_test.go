package relaywatermill_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/redis/go-redis/v9"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relaywatermill "github.com/outboxkit/outbox-go/relay/watermill"
)

// Any publisher of Watermill will do. This one is for one process.
func Example() {
	ctx := context.Background()
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, watermill.NopLogger{})
	messages, err := channel.Subscribe(ctx, "orders")
	check(err)
	publisher, err := relaywatermill.New(relaywatermill.Config{Publisher: channel})
	check(err)
	orderPlaced := outbox.NewTopic[string]("Order", "OrderPlaced")
	r, err := relay.New(relay.Config{
		Publisher: publisher,
		Source:    "/shop",
		Routes:    []relay.Route{relay.To("orders", orderPlaced.Kind())},
	})
	check(err)

	env := orderPlaced.Envelope("o-1", "tea")
	env.EventID = "e-1"
	fmt.Println(r.Publish(ctx, []outbox.Envelope{env})) // or ob.Register(r.Bindings()...)
	m := <-messages
	m.Ack()
	fmt.Println(m.UUID, string(m.Payload), m.Metadata.Get("ce-type"))
	check(r.Close(ctx))
	// Output:
	// [<nil>]
	// orders:/shop:e-1 "tea" OrderPlaced
}

// Classify names the errors of your broker that mean an outage. By default only errors of
// the network do.
func ExampleConfig() {
	channel := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}) // stands for your publisher
	publisher, err := relaywatermill.New(relaywatermill.Config{
		Publisher: channel,
		Classify: func(err error) error {
			if redis.HasErrorPrefix(err, "LOADING") {
				return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
			}
			return relaywatermill.NetworkErrors(err)
		},
	})
	check(err)
	check(publisher.Close(context.Background()))
}

// Ping asks what you give it, because Watermill has nothing for it.
func ExamplePublisher_Ping() {
	channel := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	publisher, err := relaywatermill.New(relaywatermill.Config{
		Publisher: channel,
		Ping:      func(context.Context) error { return nil }, // such as a request of the broker's client
	})
	check(err)
	fmt.Println(publisher.Ping(context.Background()))
	check(publisher.Close(context.Background()))
	// Output:
	// <nil>
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

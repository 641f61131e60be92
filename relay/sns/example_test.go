package relaysns_test

import (
	"context"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
	relaysns "github.com/outboxkit/outbox-go/relay/sns"
)

// Committed orders go to the topic orders.fifo. The order's id is the message's group.
func Example() {
	ctx := context.Background()
	cfg := aws.Config{Region: "eu-west-1"} // of config.LoadDefaultConfig
	publisher, err := relaysns.New(relaysns.Config{Client: sns.NewFromConfig(cfg)})
	check(err)
	orderPlaced := outbox.NewTopic[string]("Order", "OrderPlaced")
	r, err := relay.New(relay.Config{
		Publisher: publisher,
		Source:    "/shop",
		Routes:    []relay.Route{relay.To("arn:aws:sns:eu-west-1:123456789012:orders.fifo", orderPlaced.Kind())},
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
	publisher, err := relaysns.New(relaysns.Config{Client: sns.NewFromConfig(aws.Config{Region: "eu-west-1"})})
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

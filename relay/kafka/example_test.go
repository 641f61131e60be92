package relaykafka_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
	relaykafka "github.com/outboxkit/outbox-go/relay/kafka"
)

// Committed orders go to the topic orders of Kafka. The order's id chooses the partition.
func Example() {
	ctx := context.Background()
	publisher, err := relaykafka.New(relaykafka.Config{
		Brokers: []string{"kafka-1:9092", "kafka-2:9092"},
		Options: []kgo.Opt{
			kgo.DialTLS(),
			kgo.SASL(scram.Auth{User: "shop", Pass: os.Getenv("KAFKA_PASSWORD")}.AsSha512Mechanism()),
		},
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
	publisher, err := relaykafka.New(relaykafka.Config{
		Brokers: []string{"kafka-1:9092", "kafka-2:9092"},
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

package relayredis_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
	relayredis "github.com/outboxkit/outbox-go/relay/redis"
)

// Committed orders go to the stream orders, which keeps about a million entries.
func Example() {
	ctx := context.Background()
	publisher, err := relayredis.New(relayredis.Config{
		Options: &redis.UniversalOptions{Addrs: []string{"redis-1:6379"}, Password: os.Getenv("REDIS_PASSWORD")},
		MaxLen:  1_000_000,
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
	publisher, err := relayredis.New(relayredis.Config{
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}},
		MaxLen:  1_000_000,
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

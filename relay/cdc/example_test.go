package cdc_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

// A program of its own publishes the events of the outbox in the database shop.
func Example() {
	reader, err := cdc.New(cdc.Config{
		Source: cdc.Postgres{DSN: os.Getenv("DATABASE_URL"), Slot: "shop_outbox"},
		// Or Publish of a relay.
		Publish: cdc.ToListener(outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			log.Print(env.EventType, " ", env.AggregateID)
			return nil
		})),
	})
	check(err)
	ctx := context.Background()
	if len(os.Args) > 1 && os.Args[1] == "setup" { // once
		check(reader.Setup(ctx))
		return
	}
	check(reader.Run(ctx)) // until ctx ends
}

// Fields that cannot be right are reported before the reader connects.
func ExampleNew() {
	_, err := cdc.New(cdc.Config{
		Source:  cdc.Postgres{DSN: "postgres://reader@db:5432/shop", Slot: "Shop"},
		Publish: func(context.Context, []outbox.Envelope) []error { return nil },
	})
	fmt.Println(err)
	// Output: outbox: cdc.Postgres.Slot is "Shop"; a slot's name is lower-case letters, digits and underscores, at most 57 of them
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

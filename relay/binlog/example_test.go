package binlog_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/binlog"
)

// A program of its own publishes the events of the outbox in the database shop.
func Example() {
	reader, err := binlog.New(binlog.Config{
		DSN: os.Getenv("MYSQL_DSN"), // reader:password@tcp(db:3306)/shop
		// Or Publish of a relay.
		Publish: binlog.ToListener(outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
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
	_, err := binlog.New(binlog.Config{
		DSN:     "reader@tcp(db:3306)/",
		Publish: func(context.Context, []outbox.Envelope) []error { return nil },
	})
	fmt.Println(err)
	// Output: outbox: binlog.Config.Tables[0] is "outbox_event", and DSN names no database; write database.table, or add the database to DSN
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

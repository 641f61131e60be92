// Command cdc publishes the events of a PostgreSQL outbox by change data capture: the outbox only
// writes (outbox.WriterOnly), and this program follows the database's log. The publisher of the
// sample prints; use a publisher of a module below relay/ instead.
//
//	go run ./samples/cdc -dsn postgres://postgres@127.0.0.1:5432/shop -aggregate Order -event OrderPlaced -setup # once
//	go run ./samples/cdc -dsn postgres://postgres@127.0.0.1:5432/shop -aggregate Order -event OrderPlaced
//	go run ./samples/cdc -dsn postgres://postgres@127.0.0.1:5432/shop -lag
//
// The server needs wal_level=logical. docs/how-to/change-data-capture.md has more.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

func main() {
	var source cdc.Postgres
	flag.StringVar(&source.DSN, "dsn", "", "address of the database")
	flag.StringVar(&source.Slot, "slot", cdc.DefaultSlot, "name of the slot and the publication")
	tables := flag.String("tables", cdc.DefaultTable, "the outboxes' tables, with commas between")
	aggregate := flag.String("aggregate", string(outbox.Global), "aggregate type of the events")
	event := flag.String("event", "event", "their event type")
	setup := flag.Bool("setup", false, "make the publication and the slot, publish the pending events, and end")
	lag := flag.Bool("lag", false, "print how far the reader is behind, and end")
	flag.Parse()
	source.Tables = strings.Split(*tables, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, source, outbox.EventKind{AggregateType: outbox.AggregateType(*aggregate), EventType: outbox.EventType(*event)}, *setup, *lag)
	stop()
	if err != nil {
		slog.Error("the program ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, source cdc.Postgres, kind outbox.EventKind, setup, lag bool) error {
	r, err := relay.New(relay.Config{
		Publisher: printer{}, Source: "/shop",
		Routes: []relay.Route{relay.To("events", kind)},
	})
	if err != nil {
		return err
	}
	reader, err := cdc.New(cdc.Config{Source: source, Publish: r.Publish})
	if err != nil {
		return err
	}
	switch {
	case setup:
		return reader.Setup(ctx)
	case lag:
		l, err := reader.Lag(ctx)
		fmt.Printf("%+v\n", l)
		return err
	default:
		return reader.Run(ctx)
	}
}

// printer prints the messages.
type printer struct{}

func (printer) Publish(_ context.Context, messages []relay.Message) []error {
	for _, m := range messages {
		fmt.Println(m.Topic, m.Key, m.ID)
	}
	return nil
}

func (printer) Ping(context.Context) error  { return nil }
func (printer) Close(context.Context) error { return nil }

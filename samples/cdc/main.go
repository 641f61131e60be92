// Command cdc publishes the events of a PostgreSQL outbox by change data capture: the outbox only
// writes (outbox.WriterOnly), and this program follows the database's log. The publisher of the
// sample prints; use a publisher of a module below relay/ instead.
//
//	go run ./samples/cdc -dsn postgres://postgres@127.0.0.1:5432/shop -create-slot # once
//	go run ./samples/cdc -dsn postgres://postgres@127.0.0.1:5432/shop -aggregate Order -event OrderPlaced
//
// The server needs wal_level=logical. docs/how-to/change-data-capture.md has more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

func main() {
	dsn := flag.String("dsn", "", "address of the database")
	table := flag.String("table", "outbox_event", "the outbox's table")
	slot := flag.String("slot", "outbox_cdc", "name of the slot and the publication")
	aggregate := flag.String("aggregate", string(outbox.Global), "aggregate type of the events")
	event := flag.String("event", "", "their event type")
	create := flag.Bool("create-slot", false, "create the slot and the publication, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	reader := &Reader{DSN: *dsn, Table: *table, Slot: *slot}
	var err error
	if *create {
		err = reader.CreateSlot(ctx)
	} else {
		err = read(ctx, reader, outbox.EventKind{AggregateType: outbox.AggregateType(*aggregate), EventType: outbox.EventType(*event)})
	}
	stop()
	if err != nil {
		slog.Error("the program ends", "error", err)
		os.Exit(1)
	}
}

// read prints the events of a kind until ctx ends.
func read(ctx context.Context, reader *Reader, kind outbox.EventKind) error {
	r, err := relay.New(relay.Config{
		Publisher: printer{}, Source: "/shop",
		Routes: []relay.Route{relay.To("events", kind)},
	})
	if err != nil {
		return err
	}
	reader.Publish = r.Publish
	return follow(ctx, reader)
}

// follow runs the reader, and runs it again a second after it failed. follow returns when ctx ends,
// or without a slot.
func follow(ctx context.Context, r *Reader) error {
	for {
		err := r.Run(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrNoSlot):
			return err
		}
		slog.Error("reading the log failed; it begins again at the confirmed position", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
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

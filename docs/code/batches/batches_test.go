package batches_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type signup struct{ Email string }

var signedUp = outbox.NewTopic[signup]("User", "SignedUp")

// addressBook stands for a service with a bulk import.
type addressBook map[string]string

func (b addressBook) Import(_ context.Context, batch []outbox.Event[signup]) error {
	for _, e := range batch {
		b[e.Envelope.EventID] = e.Payload.Email
	}
	return nil
}

// client stands for a broker's, which has an error for each message.
type client struct{}

func (client) Publish(_ context.Context, messages [][]byte) []error {
	errs := make([]error, len(messages))
	for i, body := range messages {
		if string(body) == "2" {
			errs[i] = errors.New("too large")
		}
	}
	return errs
}

func messages(batch []outbox.Envelope) [][]byte {
	bodies := make([][]byte, len(batch))
	for i, env := range batch {
		bodies[i] = env.Payload.Bytes()
	}
	return bodies
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// deliver starts an outbox, commits the events in one transaction, and closes it, which
// delivers them.
func deliver(register func(ob *outbox.Outbox) error, envs ...outbox.Envelope) *outboxtest.Store {
	ctx := context.Background()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	check(register(ob))
	check(ob.Start(ctx))
	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().WriteAll(ctx, envs)
		return err
	}))
	check(ob.Close(ctx))
	return store
}

func Example_topic() {
	contacts := addressBook{}
	deliver(func(ob *outbox.Outbox) error {
		err := ob.Register(signedUp.ListenBatch(outbox.BatchOptions{Size: 100, Wait: 50 * time.Millisecond},
			func(ctx context.Context, batch []outbox.Event[signup]) ([]error, error) {
				return nil, contacts.Import(ctx, batch) // all done, or all failed
			}))
		return err
	}, signedUp.Envelope("1", signup{"a@example.com"}), signedUp.Envelope("2", signup{"b@example.com"}))
	fmt.Println(len(contacts), "contacts")
	// Output:
	// 2 contacts
}

func Example_severalTopics() {
	var broker client
	store := deliver(func(ob *outbox.Outbox) error {
		publish := outbox.BatchListener(outbox.BatchOptions{Size: 500, Wait: 20 * time.Millisecond},
			func(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
				return broker.Publish(ctx, messages(batch)), nil
			})
		err := ob.Register(outbox.On("Order", "Placed", publish), outbox.On("Order", "Paid", publish))
		return err
	},
		outbox.Envelope{AggregateType: "Order", EventType: "Placed", Payload: outbox.JSON(1)},
		outbox.Envelope{AggregateType: "Order", EventType: "Paid", Payload: outbox.JSON(2)},
	)
	for _, row := range store.Rows() {
		fmt.Println(row.Envelope.EventType, row.Status)
	}
	// Unordered output:
	// Placed DONE
	// Paid RETRY
}

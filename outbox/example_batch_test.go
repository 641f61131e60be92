package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type signup struct{ Email string }

var signedUp = outbox.NewTopic[signup]("User", "SignedUp")

// A bulk import: the whole batch is done, or none of it.
func ExampleTopic_ListenBatch() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet})
	check(err)
	contacts := map[string]string{} // by event id, so that a repeated event changes nothing
	check(ob.Register(signedUp.ListenBatch(outbox.BatchOptions{Size: 100, Wait: 50 * time.Millisecond},
		func(_ context.Context, batch []outbox.Event[signup]) ([]error, error) {
			for _, e := range batch {
				contacts[e.Envelope.EventID] = e.Payload.Email
			}
			return nil, nil // or the error of the import
		})))
	check(ob.Start(context.Background()))

	for i := range 3 {
		commit(ob, signedUp.Envelope(fmt.Sprint(i), signup{fmt.Sprintf("user%d@example.com", i)}))
	}
	check(ob.Close(context.Background())) // delivers what waits
	fmt.Println(len(contacts), "contacts")
	// Output:
	// 3 contacts
}

// broker stands for a broker's client, which has an error for each message.
type broker struct{}

var errThrottled = errors.New("slow down")

func (broker) publish(_ context.Context, messages []string) []error {
	errs := make([]error, len(messages))
	for i, m := range messages {
		if m == "throttled" {
			errs[i] = errThrottled
		}
	}
	return errs
}

// A relay to a broker: one listener for all topics, and an error for each event.
func ExampleBatchListener() {
	relay := outbox.BatchListener(outbox.BatchOptions{Size: 500, Wait: 20 * time.Millisecond},
		func(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
			messages := make([]string, len(batch))
			for i, env := range batch {
				messages[i] = env.EventID
			}
			errs := (broker{}).publish(ctx, messages)
			for i, err := range errs {
				if errors.Is(err, errThrottled) {
					errs[i] = fmt.Errorf("%w: %w", err, outbox.Defer(time.Minute)) // no failure
				}
			}
			return errs, nil
		})

	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet})
	check(err)
	check(ob.Register(outbox.On("Order", "Placed", relay), outbox.On("Order", "Paid", relay), outbox.On("User", "SignedUp", relay)))
	check(ob.Start(context.Background()))

	commit(ob,
		outbox.Envelope{EventID: "placed", AggregateType: "Order", EventType: "Placed", Payload: outbox.JSON(1)},
		outbox.Envelope{EventID: "throttled", AggregateType: "Order", EventType: "Paid", Payload: outbox.JSON(2)},
	)
	check(ob.Close(context.Background()))
	for _, row := range store.Rows() {
		fmt.Println(row.Envelope.EventID, row.Status, row.Attempts)
	}
	// Output:
	// placed DONE 0
	// throttled NEW 0
}

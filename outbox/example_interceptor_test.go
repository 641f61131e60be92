package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// An interceptor is middleware: it runs around every delivery.
func ExampleInterceptor() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet,
		Interceptors: []outbox.Interceptor{func(next outbox.Listener) outbox.Listener {
			return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
				fmt.Println("begin", env.EventType)
				err := next.OnEvent(ctx, env)
				fmt.Println("end", env.EventType, err)
				return err
			})
		}},
	})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		fmt.Println("mail for", o.ID)
		return nil
	})))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	// Output:
	// begin OrderPlaced
	// mail for o-1
	// end OrderPlaced <nil>
}

// Before may refuse a delivery. The event is then delivered again later.
func ExampleBefore() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet,
		Interceptors: []outbox.Interceptor{
			outbox.Before(func(_ context.Context, env outbox.Envelope) error {
				if env.TenantID == "" {
					return outbox.Dead(errors.New("the event has no tenant"))
				}
				return nil
			}),
		},
	})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error { return nil })))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(store.Rows()[0].Status, store.Rows()[0].LastError)
	// Output:
	// DEAD the event has no tenant
}

// After reports what became of a delivery.
func ExampleAfter() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet,
		Interceptors: []outbox.Interceptor{
			outbox.After(func(_ context.Context, env outbox.Envelope, err error) {
				fmt.Println(env.AggregateID, err)
			}),
		},
	})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error {
		return errors.New("the mail server is away")
	})))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	// Output:
	// o-1 the mail server is away
}

// OutcomeOf tells an interceptor what an error means for the row.
func ExampleOutcomeOf() {
	ctx, env := context.Background(), outbox.Envelope{}
	fmt.Println(outbox.OutcomeOf(ctx, env, nil))
	fmt.Println(outbox.OutcomeOf(ctx, env, outbox.Defer(time.Minute)))
	fmt.Println(outbox.OutcomeOf(ctx, env, errors.New("the mail server is away")))
	fmt.Println(outbox.OutcomeOf(ctx, env, outbox.Dead(errors.New("too old"))))
	// Output:
	// done
	// deferred
	// retry
	// dead
}

// ListenerOf names the listener of a retry, when the event has several listeners.
func ExampleListenerOf() {
	report := outbox.After(func(ctx context.Context, env outbox.Envelope, err error) {
		fmt.Printf("%s to %q: %v\n", env.EventType, outbox.ListenerOf(ctx), err)
	})
	listener := report(outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))
	err := listener.OnEvent(context.Background(), outbox.Envelope{EventType: "OrderPlaced"})
	check(err)
	// Output:
	// OrderPlaced to "": <nil>
}

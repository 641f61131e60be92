package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A function that gets the envelope alone suits several kinds of events.
func ExampleListenerFunc_audit() {
	audit := outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		fmt.Println(env.EventType, env.AggregateID)
		return nil
	})
	ob, _ := newShop(outbox.On("Order", "OrderPlaced", audit), outbox.On("Order", "OrderPaid", audit))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	// Output:
	// OrderPlaced o-1
}

// On binds a listener to one pair of types. An event without an aggregate has none here
// either.
func ExampleOn() {
	ob, _ := newShop(outbox.On("", "ShopOpened", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		fmt.Println(env.EventType, "of", env.AggregateType)
		return nil
	})))
	deliverAll(ob, outbox.Envelope{EventType: "ShopOpened", Payload: outbox.JSON(nil)})
	// Output:
	// ShopOpened of __GLOBAL__
}

// A listener is idempotent by the event's id: it may get an event more than once.
func ExampleListenerFunc() {
	mailed := map[string]bool{} // or a table with a unique key; see package inbox
	mail := outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		if !mailed[env.EventID] {
			mailed[env.EventID] = true
			fmt.Println("mail for", env.AggregateID)
		}
		return nil
	})
	env := outbox.Envelope{EventID: "e-1", AggregateID: "o-1"}
	for range 2 {
		check(mail.OnEvent(context.Background(), env))
	}
	// Output:
	// mail for o-1
}

// Defer waits for something that is no failure: no attempt is counted.
func ExampleDefer() {
	ob, store := newShop(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error {
		const closed = true // the warehouse
		if closed {
			return fmt.Errorf("the warehouse is closed: %w", outbox.Defer(time.Hour))
		}
		return nil
	}))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	row := store.Rows()[0]
	fmt.Println(row.Status, "attempts:", row.Attempts)
	fmt.Println(row.LastError)
	// Output:
	// NEW attempts: 0
	// the warehouse is closed: deferred for 1h0m0s
}

// RetryIn is a failure whose cause says when to try again.
func ExampleRetryIn() {
	errTooMany := errors.New("429 too many requests")
	ob, store := newShop(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error {
		return outbox.RetryIn(30*time.Second, errTooMany) // the server's Retry-After
	}))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	row := store.Rows()[0]
	fmt.Println(row.Status, "attempts:", row.Attempts)
	fmt.Println(row.LastError)
	// Output:
	// RETRY attempts: 1
	// 429 too many requests (retry after 30s)
}

// Dead is a failure that no retry corrects: the event is DEAD at once.
func ExampleDead() {
	errNoAddress := errors.New("the customer has no address")
	ob, store := newShop(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error {
		return outbox.Dead(errNoAddress)
	}))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(store.Rows()[0].Status, store.Rows()[0].LastError)
	// Output:
	// DEAD the customer has no address
}

// Dead also gives up an event that did not fail, such as one that is too old to matter.
func ExampleDead_tooOld() {
	ob, store := newShop(OrderPlaced.Listen(func(_ context.Context, _ Order, env outbox.Envelope) error {
		if time.Since(env.OccurredAt) > 24*time.Hour {
			return outbox.Dead(errors.New("older than a day"))
		}
		return nil
	}))
	env := OrderPlaced.Envelope("o-1", Order{ID: "o-1"})
	env.OccurredAt = time.Now().Add(-48 * time.Hour)
	deliverAll(ob, env)
	fmt.Println(store.Rows()[0].Status, store.Rows()[0].LastError)
	// Output:
	// DEAD older than a day
}

// ExponentialBackoff doubles the delay with each failure, up to the limit.
func ExampleExponentialBackoff() {
	policy := outbox.ExponentialBackoff(100*time.Millisecond, 10*time.Second)
	fmt.Println(policy.Delay(1) < 150*time.Millisecond) // 100 ms, give or take a half
	fmt.Println(policy.Delay(20) <= 10*time.Second)
	// Output:
	// true
	// true
}

// A rule of your own: the first retry at once, the others after a minute.
func ExampleRetryPolicyFunc() {
	store := outboxtest.NewStore()
	attempts := make(chan int)
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		RetryPolicy: outbox.RetryPolicyFunc(func(attempt int) time.Duration {
			if attempt == 1 {
				return 0
			}
			return time.Minute
		}),
	})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(_ context.Context, _ Order, env outbox.Envelope) error {
		attempts <- env.Attempts
		return errors.New("the mail server is away")
	})))
	check(ob.Start(context.Background()))
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println("failures before:", <-attempts)
	fmt.Println("failures before:", <-attempts)
	check(ob.Close(context.Background()))
	// Output:
	// failures before: 0
	// failures before: 1
}

// A table that a single version of a single program reads has no events of others: an event without a
// listener is a mistake, which the dead letters show.
func ExampleDispatchOptions_onUnroutable() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{OnUnroutable: outbox.KillUnroutable}},
	})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error { return nil })))
	deliverAll(ob, outbox.Envelope{EventType: "OrderShipped", Payload: outbox.JSON(1)})
	fmt.Println(store.Rows()[0].Status)
	// Output:
	// DEAD
}

// A registry by hand is for a dispatcher by hand, or for several outboxes.
func ExampleNewRegistry() {
	registry := outbox.NewRegistry()
	check(registry.Register(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error { return nil })))
	_, found := registry.ListenerFor("Order", "OrderPlaced")
	fmt.Println(registry.Len(), found)
	// Output:
	// 1 true
}

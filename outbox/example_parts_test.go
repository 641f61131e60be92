package outbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Deliver delivers one event synchronously, such as in a test.
func ExampleOutbox_Deliver() {
	ob, _ := newShop(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		fmt.Println("mail for", o.ID)
		return nil
	}))
	env := OrderPlaced.Envelope("o-1", Order{ID: "o-1"})
	env.EventID = "e-1"
	delivery, err := ob.Deliver(context.Background(), env)
	check(err)
	fmt.Println(delivery.Status, delivery.Err)
	// Output:
	// mail for o-1
	// DONE <nil>
}

// everything is an [outbox.ListenerRegistry] that has one listener for all kinds of events.
type everything struct{ outbox.Listener }

func (e everything) ListenerFor(outbox.AggregateType, outbox.EventType) (outbox.Listener, bool) {
	return e.Listener, true
}

// A registry of your own routes as you like, here every event to one listener. The poller
// alone delivers: commits hand over nothing.
func ExampleListenerRegistry() {
	store, printed := outboxtest.NewStore(), make(chan string)
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet,
		Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{PollerOnly: true},
			Poll:     outbox.PollOptions{Interval: 10 * time.Millisecond},
		},
		Registry: everything{outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			printed <- string(env.EventType) + " " + env.AggregateID
			return nil
		})},
	})
	check(err)
	check(ob.Start(context.Background()))
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(<-printed)
	check(ob.Close(context.Background()))
	// Output:
	// OrderPlaced o-1
}

// A test may set the time at which an event occurs.
func ExampleClockFunc() {
	store := outboxtest.NewStore()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet,
		Clock: outbox.ClockFunc(func() time.Time { return noon }),
	})
	check(err)
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(store.Rows()[0].Envelope.OccurredAt)
	// Output:
	// 2026-03-01 12:00:00 +0000 UTC
}

// bell is a [outbox.Notifier] within one process. Those of packages pgnotify and
// pqnotify reach all processes.
type bell chan struct{}

func (b bell) Notify(context.Context, outbox.DB, string) error {
	select {
	case b <- struct{}{}:
	default: // one is on its way
	}
	return nil
}

func (b bell) Listen(ctx context.Context, _ outbox.DB, _ string, wake func()) error {
	for wake(); ; wake() {
		select {
		case <-b:
		case <-ctx.Done():
			return nil
		}
	}
}

// A program that only writes notifies the one that delivers.
func ExampleNotifier() {
	store, notifier := outboxtest.NewStore(), make(bell, 1)
	writes, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}, Notifier: notifier})
	check(err)
	delivers, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.MultiNode{
		Poll: outbox.PollOptions{Interval: time.Hour}, // the notification comes before
	}, Notifier: notifier})
	check(err)
	got := make(chan string)
	check(delivers.Register(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		got <- o.ID
		return nil
	})))
	check(delivers.Start(context.Background()))
	check(writes.Start(context.Background()))
	commit(writes, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println("delivered:", <-got)
	check(writes.Close(context.Background()))
	check(delivers.Close(context.Background()))
	// Output:
	// delivered: o-1
}

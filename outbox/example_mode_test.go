package outbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// One process delivers from the table; a second one waits as a standby. What is not set
// has its default.
func ExampleSingleNode() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{
				Workers:         8,
				MaxAttempts:     5,
				ListenerTimeout: 30 * time.Second,
			},
			Poll: outbox.PollOptions{Interval: time.Second},
		},
	})
	check(err)
	fmt.Println(ob.Writer() != nil)
	// Output:
	// true
}

// Many processes deliver from one table. Each row is leased to one of them.
func ExampleMultiNode() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 32},
			Claim:    outbox.ClaimOptions{LeaseDuration: time.Minute},
		},
	})
	check(err)
	fmt.Println(ob.Writer() != nil)
	// Output:
	// true
}

// The events of one order come one after the other, those of other orders meanwhile.
func ExampleOrderedByKey() {
	store := outboxtest.NewStore() // or sqlstore.Postgres(sqlstore.WithKeyIndex())
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.OrderedByKey{
			OnDead:     outbox.SkipDead, // a DEAD event does not stop its order
			RequireKey: true,
		},
	})
	check(err)
	types := make(chan outbox.EventType)
	next := outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		types <- env.EventType
		return nil
	})
	check(ob.Register(outbox.On("Order", "OrderPlaced", next), outbox.On("Order", "OrderPaid", next)))
	check(ob.Start(context.Background()))
	commit(ob,
		outbox.Envelope{AggregateType: "Order", AggregateID: "o-1", EventType: "OrderPlaced", Payload: outbox.JSON(1)},
		outbox.Envelope{AggregateType: "Order", AggregateID: "o-1", EventType: "OrderPaid", Payload: outbox.JSON(2)},
	)
	fmt.Println(<-types)
	fmt.Println(<-types)
	check(ob.Close(context.Background()))
	// Output:
	// OrderPlaced
	// OrderPaid
}

// All events come one after the other. One that fails is DEAD, and the next one follows.
func ExampleOrdered() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.Ordered{
			Poll:            outbox.PollOptions{Interval: time.Second},
			ListenerTimeout: 10 * time.Second,
		},
	})
	check(err)
	ids := make(chan string)
	check(ob.Register(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		ids <- o.ID
		return nil
	})))
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}), OrderPlaced.Envelope("o-2", Order{ID: "o-2"}))
	check(ob.Start(context.Background())) // later events wait for the next poll, or for ob.Wake
	fmt.Println(<-ids, <-ids)
	check(ob.Close(context.Background()))
	// Output:
	// o-1 o-2
}

// Change data capture, such as Debezium, reads the table; the outbox writes and purges it.
func ExampleWriterOnly() {
	store := outboxtest.NewStore() // or sqlstore.Postgres(sqlstore.WithAgeIndex())
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode:  outbox.WriterOnly{},
		Purge: &outbox.PurgeOptions{Retention: 24 * time.Hour, Undelivered: true},
	})
	check(err)
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(store.Rows()[0].Status)
	// Output:
	// NEW
}

// The rows of delivered events are deleted at once, those of dead ones after 30 days.
func ExamplePurgeOptions() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Purge: &outbox.PurgeOptions{
			OnDone:    outbox.Delete,
			Retention: 30 * 24 * time.Hour,
			Interval:  10 * time.Minute,
		},
	})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error { return nil })))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println("rows:", len(store.Rows()))
	// Output:
	// rows: 0
}

// At most two mails at once, and ten in a second; three attempts, and none after a day. Other events
// do not wait for the mails.
func ExampleRules() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Mode: outbox.MultiNode{},
	})
	check(err)
	sent := make(chan string)
	check(ob.Register(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		sent <- o.ID
		return nil
	}, outbox.Rules{Concurrency: 2, Rate: 10, Burst: 1, MaxAttempts: 3, Expires: 24 * time.Hour})))
	check(ob.Start(context.Background()))
	commit(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println("sent:", <-sent)
	check(ob.Close(context.Background()))
	// Output:
	// sent: o-1
}

// A process that delivers for several shards runs at most 20 listeners at once.
func ExampleNewSharedWorkers() {
	workers := outbox.NewSharedWorkers(20)
	for _, shard := range []string{"eu", "us"} {
		store := outboxtest.NewStore() // each shard has its own database
		ob, err := outbox.New(outbox.Config{
			DB: store.DB(), Store: store,
			Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{SharedWorkers: workers}},
		})
		check(err)
		check(ob.Register(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
			fmt.Println(shard, o.ID)
			return nil
		})))
		deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	}
	// Output:
	// eu o-1
	// us o-1
}

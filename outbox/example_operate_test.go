package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// newShopWithDead returns the outbox of a shop, and the id of an event that is DEAD.
func newShopWithDead() (ob *outbox.Outbox, id string) {
	ob, store := newShop(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error {
		return outbox.Dead(errors.New("out of stock"))
	}))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	return ob, store.Rows()[0].Envelope.EventID
}

// Find lists what was given up, with the reason. The outbox need not run.
func ExampleDeadLetters_Find() {
	ob, _ := newShopWithDead()
	page, err := ob.DeadLetters().Find(context.Background(), outbox.DeadQuery{DeadFilter: outbox.DeadFilter{
		EventType: OrderPlaced.EventType(),
		Since:     time.Now().Add(-24 * time.Hour),
	}, Limit: 20})
	check(err)
	for _, d := range page.Rows {
		fmt.Println(d.AggregateID, d.LastError)
	}
	// Output:
	// o-1 out of stock
}

// After reads the dead letters page by page.
func ExampleDeadLetters_Find_pages() {
	ob, _ := newShopWithDead()
	for query := (outbox.DeadQuery{}); ; {
		page, err := ob.DeadLetters().Find(context.Background(), query)
		check(err)
		fmt.Println("a page of", len(page.Rows))
		if query.After = page.Next; query.After == "" {
			break
		}
	}
	// Output:
	// a page of 1
}

// Replay delivers a dead event again, after its cause is gone.
func ExampleDeadLetters_Replay() {
	ctx := context.Background()
	ob, id := newShopWithDead()
	check(ob.DeadLetters().Replay(ctx, id))
	ob.Wake() // do not wait for the next poll

	err := ob.DeadLetters().Replay(ctx, id)
	fmt.Println("twice:", errors.Is(err, outbox.ErrNotFound))
	// Output:
	// twice: true
}

// ReplayAll delivers all events again that died of one cause.
func ExampleDeadLetters_ReplayAll() {
	ob, _ := newShopWithDead()
	replayed, err := ob.DeadLetters().ReplayAll(context.Background(), outbox.DeadFilter{EventType: OrderPlaced.EventType()}, 0)
	fmt.Println(replayed, err)
	// Output:
	// 1 <nil>
}

// Delete gives an event up for good.
func ExampleDeadLetters_Delete() {
	ctx := context.Background()
	ob, id := newShopWithDead()
	_, err := ob.DeadLetters().Delete(ctx, id)
	check(err)
	_, err = ob.DeadLetters().Get(ctx, id)
	fmt.Println(errors.Is(err, outbox.ErrNotFound))
	// Output:
	// true
}

// A program for operators needs no outbox.
func ExampleNewDeadLetters() {
	store := outboxtest.NewStore() // or sqlstore.Detect(ctx, db)
	letters, err := outbox.NewDeadLetters(store.DB(), store)
	check(err)
	n, err := letters.Count(context.Background(), outbox.DeadFilter{})
	fmt.Println(n, err)
	// Output:
	// 0 <nil>
}

// A resumed kind is delivered from the oldest event on.
func ExampleOutbox_Resume() {
	ctx := context.Background()
	ob, _ := newShop()
	check(ob.Pause(ctx, outbox.Pause{Kind: OrderPlaced.Kind()}))
	paused, err := ob.Paused(ctx)
	check(err)
	fmt.Println("paused:", paused[0].Kind)

	check(ob.Resume(ctx, OrderPlaced.Kind()))
	paused, err = ob.Paused(ctx)
	check(err)
	fmt.Println("paused:", paused)
	// Output:
	// paused: Order/OrderPlaced
	// paused: []
}

// Purge deletes old rows from a cron job, by an outbox that is not started.
func ExampleOutbox_Purge() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Purge: &outbox.PurgeOptions{Retention: 7 * 24 * time.Hour},
	})
	check(err)
	deleted, err := ob.Purge(context.Background())
	fmt.Println(deleted, err)
	// Output:
	// 0 <nil>
}

// deaths counts the events that are given up.
type deaths struct {
	outbox.NopMetrics
	kinds chan outbox.EventKind
}

func (d deaths) Died(kind outbox.EventKind) { d.kinds <- kind }

// Metrics of your own embed NopMetrics and have the methods that you need.
func ExampleNopMetrics() {
	store := outboxtest.NewStore()
	metrics := deaths{kinds: make(chan outbox.EventKind, 100)}
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet, Metrics: metrics})
	check(err)
	check(ob.Register(OrderPlaced.Listen(func(context.Context, Order, outbox.Envelope) error {
		return outbox.Dead(errors.New("no such customer"))
	})))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println("died:", <-metrics.kinds)
	// Output:
	// died: Order/OrderPlaced
}

// Get reads one dead letter, with its headers and payload.
func ExampleDeadLetters_Get() {
	ob, id := newShopWithDead()
	d, err := ob.DeadLetters().Get(context.Background(), id)
	check(err)
	fmt.Println(d.Payload, d.LastError)
	// Output:
	// {"id":"o-1","total":0} out of stock
}

// Count counts what a filter chooses, here the deaths of the last day.
func ExampleDeadLetters_Count() {
	ob, _ := newShopWithDead()
	n, err := ob.DeadLetters().Count(context.Background(), outbox.DeadFilter{Since: time.Now().Add(-24 * time.Hour)})
	fmt.Println(n, err)
	// Output:
	// 1 <nil>
}

// Wake is for rows that something else than the outbox has changed.
func ExampleOutbox_Wake() {
	got := make(chan string)
	ob, store := newShop(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		got <- o.ID
		return nil
	}))
	check(ob.Start(context.Background()))
	writer := store.Writer() // of another process
	check(outbox.InTx(context.Background(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := writer.Write(ctx, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
		return err
	}))
	ob.Wake() // do not wait for the next poll
	fmt.Println(<-got)
	check(ob.Close(context.Background()))
	// Output:
	// o-1
}

// Package deadletters_test holds the Go code of docs/how-to/dead-letters.md.
package deadletters_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

type order struct{ ID string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

// newShop returns an outbox with three events that are DEAD.
func newShop() *outbox.Outbox {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	check(ob.Register(orderPlaced.Listen(func(_ context.Context, o order, _ outbox.Envelope) error {
		return outbox.Dead(fmt.Errorf("mail server refused the address of %s", o.ID))
	})))
	check(outbox.InTx(context.Background(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		for i := range 3 {
			id := fmt.Sprintf("%d", i)
			if _, err := ob.Writer().Write(ctx, orderPlaced.Envelope(id, order{id})); err != nil {
				return err
			}
		}
		return nil
	}))
	check(ob.Start(context.Background()))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := ob.DeadLetters().Count(context.Background(), outbox.DeadFilter{})
		check(err)
		if n == 3 {
			break
		}
		if time.Now().After(end) {
			panic("the events are not dead")
		}
	}
	check(ob.Close(context.Background()))
	return ob
}

// Why events died: the groups, the largest first.
func Example_groups() {
	ctx, ob := context.Background(), newShop()
	groups, _, err := ob.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	check(err)
	for _, g := range groups {
		fmt.Println(g.Count, g.Kind, g.Reason)
	}
	// Output:
	// 3 Order/OrderPlaced mail server refused the address of #
}

// Replay the largest group, batch by batch.
func Example_replayGroup() {
	if err := replayWorst(context.Background(), newShop()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 3 events replayed so far
	// replayed 3 of Order/OrderPlaced
}

// replayWorst replays the group with the most dead letters.
func replayWorst(ctx context.Context, ob *outbox.Outbox) error {
	groups, _, err := ob.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	if err != nil || len(groups) == 0 {
		return err
	}
	worst := groups[0]
	report := func(done int) { fmt.Println(done, "events replayed so far") }
	n, err := ob.DeadLetters().ReplayAll(ctx, outbox.DeadFilter{Group: worst.ID}, 500, outbox.OnProgress(report))
	fmt.Println("replayed", n, "of", worst.Kind) // n is true beside an error, too
	return err
}

// All dead letters of a kind, page by page.
func Example_pages() {
	if err := export(context.Background(), newShop(), func(d outbox.DeadLetter) error {
		fmt.Println(d.AggregateID, d.LastError)
		return nil
	}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// 0 mail server refused the address of 0
	// 1 mail server refused the address of 1
	// 2 mail server refused the address of 2
}

// Delete dead letters, and undo the deletion.
func Example_undo() {
	undo, err := withdraw(context.Background(), newShop(), "OrderPlaced")
	check(err)
	check(undo())
	// Output:
	// deleted 3 dead letters
	// restored 3 dead letters
}

// withdraw deletes the dead letters of a kind. undo makes them dead letters again.
func withdraw(ctx context.Context, ob *outbox.Outbox, kind outbox.EventType) (undo func() error, err error) {
	deletion, err := ob.DeadLetters().DeleteAll(ctx, outbox.DeadFilter{EventType: kind}, 0)
	fmt.Println("deleted", deletion.Count, "dead letters")
	return func() error {
		n, err := ob.DeadLetters().Restore(ctx, deletion.ID)
		fmt.Println("restored", n, "dead letters")
		return err // outbox.ErrNotFound if a purge deleted them, or they are restored already
	}, err
}

// export calls fn with each dead letter of a kind, in the order of death.
func export(ctx context.Context, ob *outbox.Outbox, fn func(outbox.DeadLetter) error) error {
	query := outbox.DeadQuery{DeadFilter: outbox.DeadFilter{EventType: "OrderPlaced", Since: time.Now().Add(-24 * time.Hour)}}
	for {
		page, err := ob.DeadLetters().Find(ctx, query)
		if err != nil {
			return err
		}
		for _, d := range page.Rows {
			if err := fn(d); err != nil {
				return err
			}
		}
		if query.After = page.Next; query.After == "" {
			return nil
		}
	}
}

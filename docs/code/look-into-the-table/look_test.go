// Package look_test holds the Go code of docs/how-to/look-into-the-table.md.
package look_test

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newShop() *outbox.Outbox {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	check(err)
	check(outbox.InTx(context.Background(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, outbox.Envelope{
			EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1", TenantID: "acme",
			Payload: outbox.JSON("tea"), DeliverAfter: time.Hour,
		})
		return err
	}))
	return ob
}

func Example_stats() {
	check(counts(context.Background(), newShop()))
	// Output:
	// pending: 1 due: 0 delayed: 1 dead: 0
	// the oldest has been due for 0s
}

// counts prints what waits in the table.
func counts(ctx context.Context, ob *outbox.Outbox) error {
	stats, err := ob.Stats(ctx)
	if err != nil {
		return err
	}
	fmt.Println("pending:", stats.Pending, "due:", stats.Due, "delayed:", stats.Delayed, "dead:", stats.Dead)
	fmt.Println("the oldest has been due for", stats.OldestDueAge)
	return nil
}

func Example_find() {
	check(pending(context.Background(), newShop()))
	// Output:
	// o-1 NEW 0
	// payload "tea"
}

// pending prints the events of a tenant that are not delivered.
func pending(ctx context.Context, ob *outbox.Outbox) error {
	query := outbox.EventQuery{EventFilter: outbox.EventFilter{
		Statuses: []outbox.Status{outbox.StatusNew, outbox.StatusRetry}, TenantID: "acme",
	}}
	for {
		page, err := ob.FindEvents(ctx, query) // without payloads and headers
		if err != nil {
			return err
		}
		for _, row := range page.Rows {
			fmt.Println(row.AggregateID, row.Status, row.Attempts)
			event, err := ob.FindEvent(ctx, row.EventID) // with payload and headers
			if err != nil {
				return err
			}
			fmt.Println("payload", event.Payload)
		}
		if page.Next == "" { // a page may be empty although there are more
			return nil
		}
		query.After = page.Next
	}
}

func Example_search() {
	check(refused(context.Background(), newShop()))
	// Output:
	// looked at 1 rows
}

// refused prints the events that failed because a connection was refused.
func refused(ctx context.Context, ob *outbox.Outbox) error {
	page, err := ob.FindEvents(ctx, outbox.EventQuery{EventFilter: outbox.EventFilter{
		Statuses: []outbox.Status{outbox.StatusNew, outbox.StatusRetry}, ErrorText: "connection refused",
	}})
	if err != nil {
		return err
	}
	for _, row := range page.Rows {
		fmt.Println(row.EventID, row.Attempts, row.AvailableAt, row.LastError, row.Lease)
	}
	fmt.Println("looked at", page.Looked, "rows")
	if page.Missing != nil {
		fmt.Println(page.Missing) // the index that would have made it quick
	}
	return nil
}

func Example_nodes() {
	check(delivery(context.Background(), newShop()))
	// Output:
	// 0 events delivered, half of them within 0s
}

// delivery prints who delivers, and how fast.
func delivery(ctx context.Context, ob *outbox.Outbox) error {
	nodes, err := ob.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		fmt.Println(n.Owner, n.Mode, n.Live, n.Leases)
	}
	rate, err := ob.Throughput(ctx) // over the last minute
	if err != nil {
		return err
	}
	fmt.Println(rate.Done, "events delivered, half of them within", rate.Median)
	return nil
}

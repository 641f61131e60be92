// Package purge_test holds the Go code of docs/how-to/purge.md.
package purge_test

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

func Example_config() {
	store := outboxtest.NewStore()
	db := store.DB()
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store,
		Purge: &outbox.PurgeOptions{
			Retention: 3 * 24 * time.Hour,
			Interval:  10 * time.Minute,
		},
	})
	check(err)
	deleted, err := ob.Purge(context.Background()) // now, and not only at the next interval
	fmt.Println(deleted, err)
	// Output:
	// 0 <nil>
}

func Example_onDone() {
	store := outboxtest.NewStore()
	db := store.DB()
	_, err := outbox.New(outbox.Config{
		DB: db, Store: store,
		Purge: &outbox.PurgeOptions{OnDone: outbox.Delete, Retention: 30 * 24 * time.Hour},
	})
	fmt.Println(err)
	// Output:
	// <nil>
}

func Example_job() {
	store := outboxtest.NewStore()
	fmt.Println(purge(context.Background(), store.DB(), store))
	// Output:
	// <nil>
}

// purge is for a job: it needs neither listeners nor a running outbox.
func purge(ctx context.Context, db outbox.DB, store outbox.Store) error {
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store, Purge: &outbox.PurgeOptions{Retention: 7 * 24 * time.Hour},
	})
	if err != nil {
		return err
	}
	_, err = ob.Purge(ctx)
	return err
}

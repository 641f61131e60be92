package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Code below the one that begins the transaction writes with the context alone.
func ExampleWriter_Write() {
	ob, store := newShop()
	place := func(ctx context.Context, o Order) error {
		_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope(o.ID, o))
		return err
	}

	begin := outboxtest.NewTransactor(store.DB()) // or an adapter, such as sqltx
	err := outbox.InTx(context.Background(), begin, func(ctx context.Context) error {
		return place(ctx, Order{ID: "o-1"})
	})
	fmt.Println(len(store.Rows()), "row,", err)

	err = place(context.Background(), Order{ID: "o-2"})
	fmt.Println("without a transaction:", errors.Is(err, outbox.ErrNoTransaction))
	// Output:
	// 1 row, <nil>
	// without a transaction: true
}

// WriteAll writes all events or none, in one statement.
func ExampleWriter_WriteAll() {
	ob, store := newShop()
	err := outbox.InTx(context.Background(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		ids, err := ob.Writer().WriteAll(ctx, []outbox.Envelope{
			OrderPlaced.Envelope("o-1", Order{ID: "o-1"}),
			OrderPlaced.Envelope("o-2", Order{ID: "o-2"}),
		})
		fmt.Println(len(ids), "events")
		return err
	})
	fmt.Println(len(store.Rows()), "rows,", err)
	// Output:
	// 2 events
	// 2 rows, <nil>
}

// An event is written if, and only if, its transaction commits.
func ExampleInTx() {
	ob, store := newShop()
	err := outbox.InTx(context.Background(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		if _, err := ob.Writer().Write(ctx, OrderPlaced.Envelope("o-1", Order{ID: "o-1"})); err != nil {
			return err
		}
		return errors.New("out of stock") // rolls back
	})
	fmt.Println(err)
	fmt.Println(len(store.Rows()), "rows")
	// Output:
	// out of stock
	// 0 rows
}

// An InTx within another one is a savepoint: its failure discards its own events.
func ExampleInTx_savepoint() {
	ob, store := newShop()
	begin := outboxtest.NewTransactor(store.DB())
	write := func(ctx context.Context, id string) error {
		_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope(id, Order{ID: id}))
		return err
	}
	check(outbox.InTx(context.Background(), begin, func(ctx context.Context) error {
		err := outbox.InTx(ctx, begin, func(ctx context.Context) error {
			return errors.Join(write(ctx, "o-1"), errors.New("out of stock"))
		})
		fmt.Println("o-1:", err)
		return write(ctx, "o-2")
	}))
	for _, row := range store.Rows() {
		fmt.Println("written:", row.Envelope.AggregateID)
	}
	// Output:
	// o-1: out of stock
	// written: o-2
}

// A program that writes and never delivers.
func ExampleWriterOnly_write() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}})
	check(err)
	check(outbox.InTx(context.Background(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
		return err
	}))
	fmt.Println(len(store.Rows()), "row")
	// Output:
	// 1 row
}

// The listener's own writes and the end of its event are committed together, so the
// effect happens exactly once. An adapter's Handle does all of this.
func ExampleWriter_Complete() {
	ob, store := newShop()
	begin := outboxtest.NewTransactor(store.DB()) // or an adapter, such as sqltx
	check(ob.Register(OrderPlaced.Listen(func(ctx context.Context, o Order, _ outbox.Envelope) error {
		return outbox.InTx(ctx, begin, func(ctx context.Context) error {
			fmt.Println("booked", o.ID) // in the transaction
			scope, _ := outbox.ScopeFromContext(ctx, store.DB())
			return ob.Writer().Complete(ctx, scope)
		})
	})))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(store.Rows()[0].Status)
	// Output:
	// booked o-1
	// DONE
}

// A hook adds what every event has, here the id of the request.
func ExampleWriterHook() {
	type requestID struct{}
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Hooks: []outbox.WriterHook{{
			BeforeWrite: func(ctx context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
				for i := range envs {
					envs[i].Headers = map[string]string{"request-id": ctx.Value(requestID{}).(string)}
				}
				return envs, nil
			},
			AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
				fmt.Println("committed:", len(envs), "event of request", envs[0].Headers["request-id"])
			},
		}},
	})
	check(err)
	ctx := context.WithValue(context.Background(), requestID{}, "r-1")
	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
		return err
	}))
	// Output:
	// committed: 1 event of request r-1
}

// A middleware that begins no transaction says why, for the error of a write.
func ExampleContextWithoutTx() {
	ob, _ := newShop()
	ctx := outbox.ContextWithoutTx(context.Background(), "GET requests have none")
	_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(err)
	// Output:
	// outbox: no active transaction in the context: GET requests have none
}

// WriteScope is for an adapter, which knows the scope of the caller's transaction.
func ExampleWriter_WriteScope() {
	ob, store := newShop()
	scope := outboxtest.NewScope(store.DB())
	ids, err := ob.Writer().WriteScope(context.Background(), scope, []outbox.Envelope{OrderPlaced.Envelope("o-1", Order{ID: "o-1"})})
	check(err)
	check(scope.Commit())
	fmt.Println(len(ids), "event")
	// Output:
	// 1 event
}

// An adapter puts the scope of a transaction into the context, where writers find it.
func ExampleContextWithScope() {
	ob, store := newShop()
	scope := outboxtest.NewScope(store.DB())
	ctx := outbox.ContextWithScope(context.Background(), scope)
	_, found := outbox.ScopeFromContext(ctx, store.DB())
	_, err := ob.Writer().Write(ctx, OrderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	fmt.Println(found, err)
	// Output:
	// true <nil>
}

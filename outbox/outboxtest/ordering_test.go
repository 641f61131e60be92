package outboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// The payment of the order fails at first. Its shipping waits for the retry.
func Example_orderedByKey() {
	store := outboxtest.NewStore() // or sqlstore.Postgres(sqlstore.WithKeyIndex())
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode:        outbox.OrderedByKey{RequireKey: true},
		RetryPolicy: outbox.ExponentialBackoff(10*time.Millisecond, time.Second),
	})
	if err != nil {
		panic(err)
	}
	shipped := make(chan struct{})
	attempts := 0
	err = ob.Register(
		outbox.On("Order", "Paid", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			if attempts++; attempts == 1 {
				fmt.Println(env.AggregateID, "paid: the bank does not answer")
				return errors.New("the bank does not answer")
			}
			fmt.Println(env.AggregateID, "paid")
			return nil
		})),
		outbox.On("Order", "Shipped", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			fmt.Println(env.AggregateID, "shipped")
			close(shipped)
			return nil
		})),
	)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := ob.Start(ctx); err != nil {
		panic(err)
	}
	err = outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().WriteAll(ctx, []outbox.Envelope{
			{AggregateType: "Order", AggregateID: "o-1", EventType: "Paid", Payload: outbox.JSON(42)},
			{AggregateType: "Order", AggregateID: "o-1", EventType: "Shipped", Payload: outbox.JSON("tomorrow")},
		})
		return err
	})
	if err != nil {
		panic(err)
	}
	<-shipped
	if err := ob.Close(ctx); err != nil {
		panic(err)
	}
	// Output:
	// o-1 paid: the bank does not answer
	// o-1 paid
	// o-1 shipped
}

package txretry_test

import (
	"context"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/txretry"
)

// The database refuses the first transaction.
func ExampleDo() {
	transactor := outboxtest.NewTransactor(outboxtest.NewStore().DB())
	err := txretry.Do(context.Background(), 3, func(ctx context.Context) error {
		return outbox.InTx(ctx, transactor, func(ctx context.Context) error {
			fmt.Println("attempt", txretry.Attempt(ctx))
			if txretry.Attempt(ctx) == 1 {
				return serialization
			}
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// attempt 1
	// attempt 2
	// <nil>
}

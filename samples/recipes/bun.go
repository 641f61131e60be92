package recipes

import (
	"context"

	"github.com/uptrace/bun"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
)

// Bun takes an adapter of the same db: outboxbun.New(db, writer).
func Bun(ctx context.Context, db *bun.DB, a *outboxbun.Adapter, order Order) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

package recipes

import (
	"context"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/samples/recipes/ent"
)

// Ent takes a client on the adapter's pool: entsql.OpenDB(dialect.Postgres, db).
func Ent(ctx context.Context, client *ent.Client, a *sqltx.Adapter, order Order) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Order.Create().SetID(order.ID).SetItem(order.Item).Save(ctx); err != nil {
		return err
	}
	if _, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return tx.Commit()
}

package recipes

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// Plain is database/sql by hand.
func Plain(ctx context.Context, db *sql.DB, a *sqltx.Adapter, order Order) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", order.ID, order.Item); err != nil {
		return err
	}
	if _, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return tx.Commit()
}

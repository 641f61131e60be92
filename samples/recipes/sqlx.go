package recipes

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// Sqlx takes an adapter of the same db: sqltx.New(db, writer).
func Sqlx(ctx context.Context, db *sqlx.DB, a *sqltx.Adapter, order Order) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.NamedExecContext(ctx, "INSERT INTO orders (id, item) VALUES (:id, :item)", order); err != nil {
		return err
	}
	if _, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return tx.Commit()
}

package recipes

import (
	"context"

	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
)

// GORM takes an adapter of the same db: outboxgorm.New(db, writer).
func GORM(ctx context.Context, db *gorm.DB, a *outboxgorm.Adapter, order Order) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

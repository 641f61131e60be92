package main

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// gormShop is the shop with GORM.
type gormShop struct {
	*outboxgorm.Adapter
	db *gorm.DB
}

// TableName tells GORM.
func (Order) TableName() string { return "demo_orders" }

func newGORMShop(pool *database.DB, writer *outbox.Writer) (*gormShop, error) {
	db, err := gorm.Open(pool.Dialector(), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	adapter, err := outboxgorm.New(db, writer)
	if err != nil {
		return nil, err
	}
	return &gormShop{adapter, db}, nil
}

func (s *gormShop) Place(ctx context.Context, orders []Order, events []outbox.Envelope) ([]string, error) {
	tx, ok := s.TxFrom(ctx)
	if !ok {
		return nil, outbox.ErrNoTransaction
	}
	if err := tx.Create(&orders).Error; err != nil {
		return nil, err
	}
	return s.WriteAll(ctx, tx, events)
}

func (s *gormShop) Orders(ctx context.Context, limit int) (orders []Order, err error) {
	err = s.db.WithContext(ctx).Order("placed_at DESC").Limit(limit).Find(&orders).Error
	return orders, err
}

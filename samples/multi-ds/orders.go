package main

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// Order is a row of the first database.
type Order struct {
	ID     string `gorm:"primaryKey;size:40" json:"id"`
	Item   string `gorm:"size:100" json:"item"`
	Status string `gorm:"size:20" json:"status"`
}

// TableName implements GORM's Tabler.
func (Order) TableName() string { return "multi_ds_orders" }

// orders is the first database, with GORM.
type orders struct {
	db     *gorm.DB
	outbox *outboxgorm.Adapter
	where  string
}

func newOrders(pool *database.DB, writer *outbox.Writer) (*orders, error) {
	db, err := gorm.Open(pool.Dialector(), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	adapter, err := outboxgorm.New(db, writer)
	if err != nil {
		return nil, err
	}
	return &orders{db, adapter, pool.Where}, db.AutoMigrate(&Order{})
}

// place saves an order and writes the event.
func (o *orders) place(ctx context.Context, order Order) error {
	return o.save(ctx, order, "OrderPlaced")
}

// cancel cancels an order and writes the event.
func (o *orders) cancel(ctx context.Context, order Order) error {
	order.Status = "cancelled"
	return o.save(ctx, order, "OrderCancelled")
}

func (o *orders) save(ctx context.Context, order Order, event outbox.EventType) error {
	return o.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Save(&order).Error; err != nil {
			return err
		}
		_, err := o.outbox.Write(ctx, tx, outbox.Envelope{
			EventType: event, AggregateType: "Order", AggregateID: order.ID, Payload: outbox.JSON(order),
		})
		return err
	})
}

// status returns the status of an order.
func (o *orders) status(ctx context.Context, id string) (string, error) {
	var order Order
	err := o.db.WithContext(ctx).Limit(1).Find(&order, "id = ?", id).Error
	return order.Status, err
}

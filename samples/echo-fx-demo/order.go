package main

import (
	"context"
	"crypto/rand"
	"time"

	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/outbox"
)

// Order is a row of the service's own table.
type Order struct {
	ID       string `json:"order_id" gorm:"primaryKey;size:40"`
	Customer string `json:"customer" gorm:"size:100"`
	Item     string `json:"item" gorm:"size:100"`
	Quantity int    `json:"quantity"`
	PlacedAt int64  `json:"placed_at_us"` // microseconds since 1970
}

// TableName implements GORM's Tabler.
func (Order) TableName() string { return "demo_orders" }

// OrderPlacedV1 is the payload of the event.
type OrderPlacedV1 struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

const (
	orderAggregate   outbox.AggregateType = "Order"
	orderPlacedEvent outbox.EventType     = "OrderPlaced"
)

var orderPlaced = outbox.NewTopic[OrderPlacedV1](orderAggregate, orderPlacedEvent)

func newOrder(request orderRequest) Order {
	return Order{
		ID: rand.Text(), Customer: request.Customer, Item: request.Item, Quantity: request.Quantity,
		PlacedAt: time.Now().UnixMicro(),
	}
}

func (o Order) placed() outbox.Envelope {
	return orderPlaced.Envelope(o.ID, OrderPlacedV1{OrderID: o.ID, Customer: o.Customer, Item: o.Item, Quantity: o.Quantity})
}

// shop stores the orders.
type shop struct {
	db     *gorm.DB
	outbox *outboxgorm.Adapter
}

func newShop(db *gorm.DB, adapter *outboxgorm.Adapter) *shop { return &shop{db, adapter} }

// place saves orders and writes their events in the transaction that ctx carries, and returns the
// ids of the events.
func (s *shop) place(ctx context.Context, orders []Order) ([]string, error) {
	tx, ok := s.outbox.TxFrom(ctx)
	if !ok {
		return nil, outbox.ErrNoTransaction
	}
	if err := tx.Create(&orders).Error; err != nil {
		return nil, err
	}
	events := make([]outbox.Envelope, len(orders))
	for i, order := range orders {
		events[i] = order.placed()
	}
	return s.outbox.WriteAll(ctx, tx, events)
}

// newest returns the newest orders first.
func (s *shop) newest(ctx context.Context, limit int) ([]Order, error) {
	orders := []Order{}
	err := s.db.WithContext(ctx).Order("placed_at DESC").Limit(limit).Find(&orders).Error
	return orders, err
}

package main

import (
	"crypto/rand"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Order is a row of the service's own table.
type Order struct {
	ID       string `json:"order_id" gorm:"primaryKey" bun:",pk"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
	PlacedAt int64  `json:"placed_at_us"` // microseconds since 1970
}

// createOrders is the table, in words that every database knows.
const createOrders = `CREATE TABLE IF NOT EXISTS demo_orders (
	id VARCHAR(40) NOT NULL PRIMARY KEY,
	customer VARCHAR(100) NOT NULL,
	item VARCHAR(100) NOT NULL,
	quantity INTEGER NOT NULL,
	placed_at BIGINT NOT NULL)`

// OrderPlacedV1 is what the world is told of an order.
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

// newOrder is an order and its event. A simulated failure of the listener goes
// along in a header.
func newOrder(request orderRequest, simulate string) (Order, outbox.Envelope) {
	order := Order{
		ID: rand.Text(), Customer: request.Customer, Item: request.Item, Quantity: request.Quantity,
		PlacedAt: time.Now().UnixMicro(),
	}
	env := orderPlaced.Envelope(order.ID, OrderPlacedV1{
		OrderID: order.ID, Customer: order.Customer, Item: order.Item, Quantity: order.Quantity,
	})
	if simulate != "" {
		env.Headers = map[string]string{simulateHeader: simulate}
	}
	return order, env
}

// Package recipes places an order and the event in the same transaction, once with each library.
// The pages in docs/how-to/adapters show this code, and the tests of this package run it on
// PostgreSQL.
package recipes

import "github.com/outboxkit/outbox-go/outbox"

// Order is a row of the table orders, and the payload of the event.
type Order struct {
	ID   string `json:"id" gorm:"primaryKey" bun:",pk"`
	Item string `json:"item"`
}

var orderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

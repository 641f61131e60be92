// Package recipes has one order and its event in one transaction, once for each
// library. docs/how-to/libraries.md shows the lines that matter; the tests run them on
// PostgreSQL.
package recipes

import "github.com/outboxkit/outbox-go/outbox"

// Order is a row of the table orders, and the payload of its event.
type Order struct {
	ID   string `json:"id" gorm:"primaryKey" bun:",pk"`
	Item string `json:"item"`
}

var orderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

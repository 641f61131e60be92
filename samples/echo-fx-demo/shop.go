package main

import (
	"context"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// Shop keeps the orders. Each of the three ways to speak to the database has
// one.
type Shop interface {
	// Transactor begins the request's transaction.
	outbox.Transactor
	// Place adds orders and writes their events, in the transaction of ctx, and
	// returns the ids of the events.
	Place(ctx context.Context, orders []Order, events []outbox.Envelope) ([]string, error)
	// Orders is the newest orders.
	Orders(ctx context.Context, limit int) ([]Order, error)
}

// newShop makes the one that the settings name.
func newShop(s Settings, db *database.DB, writer *outbox.Writer) (Shop, error) {
	switch s.ORM {
	case "gorm":
		return newGORMShop(db, writer)
	case "bun":
		return newBunShop(db, writer)
	case "sql":
		return newSQLShop(db, writer)
	default:
		return nil, fmt.Errorf("there is no shop for the ORM %q", s.ORM)
	}
}

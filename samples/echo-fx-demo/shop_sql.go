package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// sqlShop is the shop with database/sql alone.
type sqlShop struct {
	*sqltx.Adapter
	db *database.DB
}

func newSQLShop(db *database.DB, writer *outbox.Writer) (*sqlShop, error) {
	adapter, err := sqltx.New(db.DB, writer)
	return &sqlShop{adapter, db}, err
}

// parameter is the n-th parameter of a statement, from 1.
func (s *sqlShop) parameter(n int) string {
	if s.db.Kind == database.Postgres {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}

func (s *sqlShop) Place(ctx context.Context, orders []Order, events []outbox.Envelope) ([]string, error) {
	tx, ok := s.TxFrom(ctx)
	if !ok {
		return nil, outbox.ErrNoTransaction
	}
	const columns = 5
	rows := make([]string, len(orders))
	args := make([]any, 0, columns*len(orders))
	for i, o := range orders {
		args = append(args, o.ID, o.Customer, o.Item, o.Quantity, o.PlacedAt)
		row := make([]string, columns)
		for j := range row {
			row[j] = s.parameter(columns*i + j + 1)
		}
		rows[i] = "(" + strings.Join(row, ", ") + ")"
	}
	query := "INSERT INTO demo_orders (id, customer, item, quantity, placed_at) VALUES " + strings.Join(rows, ", ")
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return nil, err
	}
	return s.WriteAll(ctx, tx, events)
}

func (s *sqlShop) Orders(ctx context.Context, limit int) (orders []Order, err error) {
	rows, err := s.db.QueryContext(ctx,
		"SELECT id, customer, item, quantity, placed_at FROM demo_orders ORDER BY placed_at DESC LIMIT "+s.parameter(1), limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var o Order
		if err := rows.Scan(&o.ID, &o.Customer, &o.Item, &o.Quantity, &o.PlacedAt); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

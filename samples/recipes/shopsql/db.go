// Package shopsql is the code that sqlc generates for database/sql, shortened.
package shopsql

import (
	"context"
	"database/sql"
)

// DBTX is a *sql.DB or a *sql.Tx.
type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// New makes queries on a pool.
func New(db DBTX) *Queries { return &Queries{db: db} }

// Queries are the queries of query.sql.
type Queries struct{ db DBTX }

// WithTx returns the queries in a transaction.
func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{db: tx} }

const createOrder = `-- name: CreateOrder :exec
INSERT INTO orders (id, item) VALUES ($1, $2)
`

// CreateOrderParams are the parameters of CreateOrder.
type CreateOrderParams struct {
	ID   string
	Item string
}

// CreateOrder inserts an order.
func (q *Queries) CreateOrder(ctx context.Context, arg CreateOrderParams) error {
	_, err := q.db.ExecContext(ctx, createOrder, arg.ID, arg.Item)
	return err
}

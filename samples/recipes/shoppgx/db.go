// Package shoppgx is the code that sqlc generates for pgx, shortened.
package shoppgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX is a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

// New makes queries on a pool.
func New(db DBTX) *Queries { return &Queries{db: db} }

// Queries are the queries of query.sql.
type Queries struct{ db DBTX }

// WithTx returns the queries in a transaction.
func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{db: tx} }

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
	_, err := q.db.Exec(ctx, createOrder, arg.ID, arg.Item)
	return err
}

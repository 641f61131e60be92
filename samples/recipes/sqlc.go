package recipes

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/samples/recipes/shoppgx"
	"github.com/outboxkit/outbox-go/samples/recipes/shopsql"
)

// SQLC is sqlc's code for database/sql.
func SQLC(ctx context.Context, queries *shopsql.Queries, a *sqltx.Adapter, order Order) error {
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := queries.WithTx(tx).CreateOrder(ctx, shopsql.CreateOrderParams{ID: order.ID, Item: order.Item}); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// SQLCPgx is sqlc's code for pgx.
func SQLCPgx(ctx context.Context, pool *pgxpool.Pool, queries *shoppgx.Queries, a *outboxpgx.Adapter, order Order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := queries.WithTx(tx).CreateOrder(ctx, shoppgx.CreateOrderParams{ID: order.ID, Item: order.Item}); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// PgxBatch is one round trip for all: PostgreSQL runs a batch as a transaction.
func PgxBatch(ctx context.Context, pool *pgxpool.Pool, a *outboxpgx.Adapter, order Order) error {
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO orders (id, item) VALUES ($1, $2)", order.ID, order.Item)
	if _, err := a.Queue(ctx, batch, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return pool.SendBatch(ctx, batch).Close()
}

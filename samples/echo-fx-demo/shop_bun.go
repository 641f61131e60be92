package main

import (
	"context"

	"github.com/uptrace/bun"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// bunShop is the shop with bun.
type bunShop struct {
	*outboxbun.Adapter
	db *bun.DB
}

func newBunShop(pool *database.DB, writer *outbox.Writer) (*bunShop, error) {
	db := bun.NewDB(pool.DB, pool.Dialect())
	adapter, err := outboxbun.New(db, writer)
	if err != nil {
		return nil, err
	}
	return &bunShop{adapter, db}, nil
}

func (s *bunShop) Place(ctx context.Context, orders []Order, events []outbox.Envelope) ([]string, error) {
	tx, ok := s.TxFrom(ctx)
	if !ok {
		return nil, outbox.ErrNoTransaction
	}
	if _, err := tx.NewInsert().Model(&orders).ModelTableExpr("demo_orders").Exec(ctx); err != nil {
		return nil, err
	}
	return s.WriteAll(ctx, tx, events)
}

func (s *bunShop) Orders(ctx context.Context, limit int) (orders []Order, err error) {
	err = s.db.NewSelect().Model(&orders).ModelTableExpr("demo_orders AS ?TableAlias").Order("placed_at DESC").Limit(int64(limit)).Scan(ctx)
	return orders, err
}

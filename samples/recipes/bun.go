package recipes

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// BunShop uses bun.
type BunShop struct {
	DB     *bun.DB
	Outbox *outbox.Outbox
	events *outboxbun.Adapter
}

// NewBunShop opens the database.
func NewBunShop(dsn string) (*BunShop, error) {
	pool, err := sqltx.Open("pgx", dsn) // instead of sql.Open
	if err != nil {
		return nil, err
	}
	db := bun.NewDB(pool, pgdialect.New())
	store, err := outboxbun.Store(db) // for the database of the dialect
	if err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: pool, Store: store})
	if err != nil {
		return nil, err
	}
	events, err := outboxbun.New(db, ob.Writer())
	if err != nil {
		return nil, err
	}
	return &BunShop{db, ob, events}, nil
}

// Place stores an order and the event.
func (s *BunShop) Place(ctx context.Context, order Order) error {
	return s.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *BunShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
	err = s.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		for _, order := range orders {
			err := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { // a savepoint
				if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
					return err
				}
				_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
				return err
			})
			if err != nil {
				refused = append(refused, err)
			}
		}
		return nil
	})
	return refused, err
}

package recipes

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/samples/recipes/shoppgx"
)

// SQLCPgxShop uses the code that sqlc generates for pgx.
type SQLCPgxShop struct {
	Pool    *pgxpool.Pool
	Queries *shoppgx.Queries
	Outbox  *outbox.Outbox
	events  *outboxpgx.Adapter
}

// NewSQLCPgxShop opens the database.
func NewSQLCPgxShop(ctx context.Context, dsn string) (*SQLCPgxShop, error) {
	pool, err := outboxpgx.Open(ctx, dsn) // instead of pgxpool.New
	if err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: outboxpgx.DB(pool), Store: sqlstore.Postgres()})
	if err != nil {
		return nil, err
	}
	events, err := outboxpgx.New(pool, ob.Writer())
	if err != nil {
		return nil, err
	}
	return &SQLCPgxShop{pool, shoppgx.New(pool), ob, events}, nil
}

// Place stores an order and the event.
func (s *SQLCPgxShop) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		queries := s.Queries.WithTx(tx)
		if err := queries.CreateOrder(ctx, shoppgx.CreateOrderParams{ID: order.ID, Item: order.Item}); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *SQLCPgxShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		for _, order := range orders {
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
				queries := s.Queries.WithTx(tx)
				if err := queries.CreateOrder(ctx, shoppgx.CreateOrderParams{ID: order.ID, Item: order.Item}); err != nil {
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

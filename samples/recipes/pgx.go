package recipes

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// PgxShop uses pgx without database/sql.
type PgxShop struct {
	Pool   *pgxpool.Pool
	Outbox *outbox.Outbox
	events *outboxpgx.Adapter
}

// NewPgxShop opens the database.
func NewPgxShop(ctx context.Context, dsn string) (*PgxShop, error) {
	pool, err := outboxpgx.Open(ctx, dsn) // instead of pgxpool.New
	if err != nil {
		return nil, err
	}
	db := outboxpgx.DB(pool) // for the outbox's own statements, on the same connections
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.Postgres()})
	if err != nil {
		return nil, err
	}
	events, err := outboxpgx.New(pool, ob.Writer())
	if err != nil {
		return nil, err
	}
	return &PgxShop{pool, ob, events}, nil
}

// Place stores an order and the event.
func (s *PgxShop) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", order.ID, order.Item); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// PlaceInABatch is Place in one round trip: PostgreSQL runs a batch as a transaction.
func (s *PgxShop) PlaceInABatch(ctx context.Context, order Order) error {
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO orders (id, item) VALUES ($1, $2)", order.ID, order.Item)
	if _, err := s.events.Queue(ctx, batch, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return s.Pool.SendBatch(ctx, batch).Close()
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *PgxShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		for _, order := range orders {
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
				if _, err := tx.Exec(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", order.ID, order.Item); err != nil {
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

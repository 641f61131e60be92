package recipes

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// SqlxShop uses sqlx.
type SqlxShop struct {
	DB     *sqlx.DB
	Outbox *outbox.Outbox
	events *sqltx.Adapter
}

// NewSqlxShop opens the database.
func NewSqlxShop(dsn string) (*SqlxShop, error) {
	pool, err := sqltx.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db := sqlx.NewDb(pool, "pgx") // instead of sqlx.Open("pgx", dsn)
	ob, err := outbox.New(outbox.Config{DB: pool, Store: sqlstore.Postgres()})
	if err != nil {
		return nil, err
	}
	events, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return nil, err
	}
	return &SqlxShop{db, ob, events}, nil
}

// Place stores an order and the event.
func (s *SqlxShop) Place(ctx context.Context, order Order) error {
	tx, err := s.DB.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.NamedExecContext(ctx, "INSERT INTO orders (id, item) VALUES (:id, :item)", order); err != nil {
		return err
	}
	if _, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return tx.Commit()
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *SqlxShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
	tx, err := s.DB.BeginTxx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	ctx, err = s.events.WithTx(ctx, tx) // so that InTx finds the transaction
	if err != nil {
		return nil, err
	}
	for _, order := range orders {
		err := outbox.InTx(ctx, s.events, func(ctx context.Context) error { // a savepoint
			if _, err := tx.NamedExecContext(ctx, "INSERT INTO orders (id, item) VALUES (:id, :item)", order); err != nil {
				return err
			}
			_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
			return err
		})
		if err != nil {
			refused = append(refused, err)
		}
	}
	return refused, tx.Commit()
}

package recipes

import (
	"context"
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// SQLShop uses database/sql.
type SQLShop struct {
	DB     *sql.DB
	Outbox *outbox.Outbox
	events *sqltx.Adapter
}

// NewSQLShop opens the database.
func NewSQLShop(dsn string) (*SQLShop, error) {
	db, err := sqltx.Open("pgx", dsn) // instead of sql.Open
	if err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.Postgres()})
	if err != nil {
		return nil, err
	}
	events, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return nil, err
	}
	return &SQLShop{db, ob, events}, nil
}

// Place stores an order and the event.
func (s *SQLShop) Place(ctx context.Context, order Order) error {
	return s.events.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", order.ID, order.Item); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// PlaceByHand is Place for code that begins and commits transactions itself.
func (s *SQLShop) PlaceByHand(ctx context.Context, order Order) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", order.ID, order.Item); err != nil {
		return err
	}
	if _, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return tx.Commit()
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *SQLShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
	err = s.events.RunInTx(ctx, nil, func(ctx context.Context, _ *sql.Tx) error {
		for _, order := range orders {
			if err := s.Place(ctx, order); err != nil { // a savepoint, because ctx has a transaction
				refused = append(refused, err)
			}
		}
		return nil
	})
	return refused, err
}

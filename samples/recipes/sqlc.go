package recipes

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/samples/recipes/shopsql"
)

// SQLCShop uses the code that sqlc generates for database/sql.
type SQLCShop struct {
	DB      *sql.DB
	Queries *shopsql.Queries
	Outbox  *outbox.Outbox
	events  *sqltx.Adapter
}

// NewSQLCShop opens the database.
func NewSQLCShop(dsn string) (*SQLCShop, error) {
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
	return &SQLCShop{db, shopsql.New(db), ob, events}, nil
}

// Place stores an order and the event.
func (s *SQLCShop) Place(ctx context.Context, order Order) error {
	return s.events.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		queries := s.Queries.WithTx(tx)
		if err := queries.CreateOrder(ctx, shopsql.CreateOrderParams{ID: order.ID, Item: order.Item}); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *SQLCShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
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

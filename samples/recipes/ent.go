package recipes

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/samples/recipes/ent"
)

// EntShop uses ent.
type EntShop struct {
	DB     *sql.DB
	Client *ent.Client
	Outbox *outbox.Outbox
	events *sqltx.Adapter
}

// NewEntShop opens the database.
func NewEntShop(dsn string) (*EntShop, error) {
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
	client := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db)))
	return &EntShop{db, client, ob, events}, nil
}

// Place stores an order and the event.
func (s *EntShop) Place(ctx context.Context, order Order) error {
	tx, err := s.Client.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.Order.Create().SetID(order.ID).SetItem(order.Item).Save(ctx); err != nil {
		return err
	}
	if _, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return tx.Commit()
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *EntShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
	tx, err := s.Client.Tx(ctx)
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
			if _, err := tx.Order.Create().SetID(order.ID).SetItem(order.Item).Save(ctx); err != nil {
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

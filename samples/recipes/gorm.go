package recipes

import (
	"context"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// GORMShop uses GORM.
type GORMShop struct {
	DB     *gorm.DB
	Outbox *outbox.Outbox
	events *outboxgorm.Adapter
}

// NewGORMShop opens the database.
func NewGORMShop(dsn string) (*GORMShop, error) {
	pool, err := sqltx.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}))
	if err != nil {
		return nil, err
	}
	store, err := outboxgorm.Store(db) // for the database of the dialector
	if err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: pool, Store: store})
	if err != nil {
		return nil, err
	}
	events, err := outboxgorm.New(db, ob.Writer())
	if err != nil {
		return nil, err
	}
	return &GORMShop{db, ob, events}, nil
}

// Place stores an order and the event.
func (s *GORMShop) Place(ctx context.Context, order Order) error {
	return s.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		_, err := s.events.Write(ctx, tx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// PlaceEach stores the orders that the database accepts, in one transaction.
func (s *GORMShop) PlaceEach(ctx context.Context, orders []Order) (refused []error, err error) {
	err = s.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		for _, order := range orders {
			err := tx.Transaction(func(tx *gorm.DB) error { // a savepoint
				if err := tx.Create(&order).Error; err != nil {
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

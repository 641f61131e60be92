package main

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// Reservation is a row of the second database.
type Reservation struct {
	bun.BaseModel `bun:"table:multi_ds_reservations" json:"-"`
	OrderID       string `bun:"order_id,pk,type:varchar(40)" json:"order_id"`
	Item          string `bun:"item,type:varchar(100)" json:"item"`
}

// errSoldOut is the inventory's refusal.
var errSoldOut = errors.New("sold out")

// inventory is the second database, with bun.
type inventory struct {
	db     *bun.DB
	outbox *outboxbun.Adapter
	where  string
}

func newInventory(pool *database.DB, writer *outbox.Writer) (*inventory, error) {
	db := bun.NewDB(pool.DB, pool.Dialect())
	adapter, err := outboxbun.New(db, writer)
	if err != nil {
		return nil, err
	}
	_, err = db.NewCreateTable().Model((*Reservation)(nil)).IfNotExists().Exec(context.Background())
	return &inventory{db, adapter, pool.Where}, err
}

// reserve reserves the ordered item and writes the event. When the item turns out
// to be sold out, both are rolled back.
func (i *inventory) reserve(ctx context.Context, order Order) error {
	return i.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		reservation := Reservation{OrderID: order.ID, Item: order.Item}
		if _, err := tx.NewInsert().Model(&reservation).Exec(ctx); err != nil {
			return err
		}
		if _, err := i.outbox.Write(ctx, tx, outbox.Envelope{
			EventType: "StockReserved", AggregateType: "Stock", AggregateID: order.ID, Payload: outbox.JSON(reservation),
		}); err != nil {
			return err
		}
		if order.Item == "unicorn" {
			return errSoldOut
		}
		return nil
	})
}

// reserved reports whether something is reserved for the order.
func (i *inventory) reserved(ctx context.Context, orderID string) (bool, error) {
	return i.db.NewSelect().Model((*Reservation)(nil)).Where("order_id = ?", orderID).Exists(ctx)
}

package orderbykey_test

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type Order struct{ ID string }

func newOutbox(db *sql.DB) (*outbox.Outbox, error) {
	store := sqlstore.Postgres(sqlstore.WithKeyIndex()) // or MySQL, SQLite, Detect
	return outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.OrderedByKey{RequireKey: true},
	})
}

// pay locks the order, so that transactions on one order commit in the order in which
// they write its events.
func pay(ctx context.Context, a *sqltx.Adapter, order Order) error {
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET paid = TRUE WHERE id = $1", order.ID); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, outbox.Envelope{
			AggregateType: "Order", AggregateID: order.ID, // the key
			EventType: "OrderPaid", Payload: outbox.JSON(order),
		})
		return err
	})
}

func Example() {
	var (
		db    *sql.DB // from sqltx.Open
		order Order
	)
	ob, err := newOutbox(db)
	if err != nil {
		panic(err)
	}
	a, err := sqltx.New(db, ob.Writer())
	if err != nil {
		panic(err)
	}
	if err := pay(context.Background(), a, order); err != nil {
		panic(err)
	}
}

package orderbykey_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
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

func TestPaidOrdersAreDeliveredInOrder(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[0])
	require.NoError(t, sqlstore.Postgres(sqlstore.WithKeyIndex()).CreateSchema(t.Context(), db))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT, paid BOOLEAN)")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO orders VALUES ('o-1', FALSE)")
	require.NoError(t, err)
	ob, err := newOutbox(db.DB)
	require.NoError(t, err)
	var ids []string
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPaid", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		ids = append(ids, env.EventID)
		return nil
	}))))
	a, err := sqltx.New(db.DB, ob.Writer())
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, pay(t.Context(), a, Order{ID: "o-1"}))
	}
	require.NoError(t, ob.Start(t.Context()))
	require.Eventually(t, func() bool {
		stats, err := ob.Stats(t.Context())
		return err == nil && stats.Pending == 0
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, ob.Close(t.Context()))
	require.Len(t, ids, 3)
	require.IsIncreasing(t, ids)
}

// Package several_test holds the Go code of docs/how-to/several-databases.md that is in no
// sample.
package several_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// source is a database with its outbox.
type source struct {
	outbox *outbox.Outbox
	tx     *sqltx.Adapter
}

func newSource(db *sql.DB, store *sqlstore.Store, listeners ...outbox.Binding) (*source, error) {
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}})
	if err != nil {
		return nil, err
	}
	tx, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return nil, err
	}
	return &source{ob, tx}, ob.Register(listeners...)
}

func build(ordersDB, inventoryDB *sql.DB, listeners ...outbox.Binding) error {
	orders, err := newSource(ordersDB, sqlstore.Postgres(), listeners...)
	if err != nil {
		return err
	}
	inventory, err := newSource(inventoryDB, sqlstore.MySQL(), listeners...)
	if err != nil {
		return err
	}
	ctx := context.Background()
	tx, err := ordersDB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	event := outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1", Payload: outbox.JSON(1)}
	if _, err := orders.tx.Write(ctx, tx, event); err != nil {
		return err
	}
	_, err = inventory.tx.Write(ctx, tx, event) // the other database's
	return err
}

func TestAnEventOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	pools := make([]*sql.DB, 2)
	for i, target := range testdb.Main()[:2] {
		db := testdb.Open(t, target)
		driver, dsn := "pgx", db.DSN
		if i == 1 {
			driver = "mysql"
		}
		pool, err := sqltx.Open(driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		store, err := sqlstore.Detect(t.Context(), pool)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), pool))
		pools[i] = pool
	}
	require.ErrorIs(t, build(pools[0], pools[1]), outbox.ErrForeignTransaction)
}

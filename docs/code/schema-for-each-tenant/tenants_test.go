// Package tenants_test holds the Go code of docs/how-to/schema-for-each-tenant.md.
package tenants_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type order struct {
	ID string
}

var placed = outbox.NewTopic[order]("Order", "OrderPlaced")

func place(ctx context.Context, a *sqltx.Adapter, tenant string, o order) error {
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT set_config('search_path', $1, true)", tenant); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", o.ID); err != nil {
			return err
		}
		event := placed.Envelope(o.ID, o)
		event.TenantID = tenant
		_, err := a.Write(ctx, tx, event)
		return err
	})
}

// tenantOutbox is the outbox of a tenant that has tables of its own.
func tenantOutbox(ctx context.Context, db *sql.DB, tenant string, listeners ...outbox.Binding) (*outbox.Outbox, error) {
	store := sqlstore.Postgres(sqlstore.WithTable(tenant + ".outbox_event"))
	if err := store.CreateSchema(ctx, db); err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}})
	if err != nil {
		return nil, err
	}
	if err := ob.Register(listeners...); err != nil {
		return nil, err
	}
	return ob, ob.Start(ctx)
}

func TestASchemaForEachTenant(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Via(sqltx.Open, testdb.Main()[:1]), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		tenant := fmt.Sprintf("docs_tenant_%d", time.Now().UnixNano())
		for _, statement := range []string{"CREATE SCHEMA " + tenant, "CREATE TABLE " + tenant + ".orders (id TEXT)"} {
			_, err := db.ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		t.Cleanup(func() {
			_, _ = db.ExecContext(context.WithoutCancel(ctx), "DROP SCHEMA "+tenant+" CASCADE")
		})
		delivered := make(chan string, 10)
		listener := placed.Listen(func(_ context.Context, o order, env outbox.Envelope) error {
			delivered <- env.TenantID + " " + o.ID
			return nil
		})
		own, err := tenantOutbox(ctx, db.DB, tenant, listener)
		require.NoError(t, err)
		defer func() { require.NoError(t, own.Close(context.WithoutCancel(ctx))) }()

		shared, err := outbox.New(outbox.Config{DB: db.DB, Store: sqlstore.Postgres()})
		require.NoError(t, err)
		require.NoError(t, sqlstore.Postgres().CreateSchema(ctx, db.DB))
		require.NoError(t, shared.Register(listener))
		require.NoError(t, shared.Start(ctx))
		defer func() { require.NoError(t, shared.Close(context.WithoutCancel(ctx))) }()
		for table, ob := range map[string]*outbox.Outbox{"outbox_event": shared, tenant + ".outbox_event": own} {
			a, err := sqltx.New(db.DB, ob.Writer())
			require.NoError(t, err)
			require.NoError(t, place(ctx, a, tenant, order{ID: "o-1"}))
			select {
			case got := <-delivered:
				require.Equal(t, tenant+" o-1", got)
			case <-time.After(20 * time.Second):
				t.Fatal("the event was not delivered")
			}
			rows := 0
			require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&rows))
			require.Equal(t, 1, rows, table)
		}
	})
}

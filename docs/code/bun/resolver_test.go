// Package bun_test shows what docs/how-to/adapters/bun.md says of connection resolvers.
package bun_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

type invoice struct {
	ID string `bun:",pk"`
}

// reader is a resolver that reads from a replica.
type reader struct{ replica *sql.DB }

func (r reader) ResolveConn(_ context.Context, query bun.Query) bun.IConn {
	if query.Operation() == "SELECT" {
		return r.replica
	}
	return nil // the pool of bun.NewDB
}

func (r reader) Close() error { return r.replica.Close() }

// A transaction of bun stays on the pool of bun.NewDB, whatever the resolver says. Reads outside of a
// transaction go to the replica.
func TestATransactionStaysOnTheMainPool(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	main, err := sqltx.Open("sqlite", "file:/resolver-main?vfs=memdb&_txlock=immediate")
	require.NoError(t, err)
	replica, err := sql.Open("sqlite", "file:/resolver-replica?vfs=memdb")
	require.NoError(t, err)
	for _, pool := range []*sql.DB{main, replica} {
		_, err := pool.ExecContext(ctx, "CREATE TABLE invoices (id TEXT PRIMARY KEY)")
		require.NoError(t, err)
	}
	_, err = replica.ExecContext(ctx, "INSERT INTO invoices (id) VALUES ('of the replica')")
	require.NoError(t, err)

	db := bun.NewDB(main, sqlitedialect.New(), bun.WithConnResolver(reader{replica}))
	t.Cleanup(func() { require.NoError(t, db.Close()) }) // closes the replica too
	store, err := outboxbun.Store(db)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, main))
	ob, err := outbox.New(outbox.Config{DB: main, Store: store})
	require.NoError(t, err)
	events, err := outboxbun.New(db, ob.Writer())
	require.NoError(t, err)

	write := func(ctx context.Context, tx bun.Tx, id string) error {
		if _, err := tx.NewInsert().Model(&invoice{id}).Exec(ctx); err != nil {
			return err
		}
		n, err := tx.NewSelect().Model((*invoice)(nil)).Where("id = ?", id).Count(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "a transaction reads where it writes")
		_, err = events.Write(ctx, tx, outbox.Envelope{EventType: "Invoiced", AggregateType: "Invoice", AggregateID: id, Payload: outbox.JSON(id)})
		return err
	}
	require.NoError(t, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return write(ctx, tx, "i-1") }))
	require.NoError(t, outbox.InTx(ctx, events, func(ctx context.Context) error {
		tx, _ := events.TxFrom(ctx)
		return write(ctx, tx, "i-2")
	}))

	var ids []string
	require.NoError(t, db.NewSelect().Model((*invoice)(nil)).Column("id").Scan(ctx, &ids))
	require.Equal(t, []string{"of the replica"}, ids, "reads outside of a transaction go to the replica")
	written := 0
	require.NoError(t, main.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event").Scan(&written))
	require.Equal(t, 2, written)
}

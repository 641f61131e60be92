package outboxpgx_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var order = outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "1", Payload: outbox.JSON(1)}

// delivering starts an outbox on the pool, and returns what arrives.
func delivering(t *testing.T, pool *pgxpool.Pool, mode outbox.Mode) (*outbox.Outbox, *outboxpgx.Adapter, <-chan string) {
	t.Helper()
	db := closing(t, outboxpgx.DB(pool))
	store := sqlstore.Postgres()
	require.NoError(t, store.CreateSchema(t.Context(), db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: slog.New(slog.DiscardHandler), Mode: mode})
	require.NoError(t, err)
	arrived := make(chan string, 100)
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		arrived <- env.EventID
		return nil
	}))))
	require.NoError(t, ob.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, ob.Close(context.Background())) })
	a, err := outboxpgx.New(pool, ob.Writer())
	require.NoError(t, err)
	return ob, a, arrived
}

func arrives(t *testing.T, arrived <-chan string, want string) {
	t.Helper()
	select {
	case got := <-arrived:
		require.Equal(t, want, got)
	case <-time.After(20 * time.Second):
		t.Fatal("the event did not arrive")
	}
}

func followedPool(t *testing.T, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	return followedPoolOn(t, testdb.Open(t, testdb.Main()[0]), mode)
}

// followedPoolOn opens a followed pool of pgx on a database.
func followedPoolOn(t testing.TB, plain *testdb.DB, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	return newPool(t, plain.DSN, follow, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
}

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// Nothing polls: what arrives came over the hot path.
func TestEventsTakeTheHotPath(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}},
		"many nodes":  outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}},
	} {
		for _, exec := range modes {
			t.Run(name+"/"+exec.String(), func(t *testing.T) {
				t.Parallel()
				pool := followedPool(t, exec)
				_, a, arrived := delivering(t, pool, mode)
				var id string
				require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
					id, err = a.Write(t.Context(), tx, order)
					return err
				}))
				arrives(t, arrived, id)

				batch := &pgx.Batch{}
				id, err := a.Queue(t.Context(), batch, order)
				require.NoError(t, err)
				require.NoError(t, pool.SendBatch(t.Context(), batch).Close())
				arrives(t, arrived, id)
				require.Empty(t, arrived)
			})
		}
	}
}

// An event of a batch whose answers were not read reaches its listener, too.
func TestUncertainEventsAreDelivered(t *testing.T) {
	t.Parallel()
	pool := followedPool(t, pgx.QueryExecModeCacheStatement)
	_, a, arrived := delivering(t, pool, outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}})
	batch := &pgx.Batch{}
	batch.Queue("SELECT 1").QueryRow(func(pgx.Row) error { return context.Canceled })
	id, err := a.Queue(t.Context(), batch, order)
	require.NoError(t, err)
	require.ErrorIs(t, pool.SendBatch(t.Context(), batch).Close(), context.Canceled)
	arrives(t, arrived, id)
}

// The store's statements, on the pool, in the modes that its own tests do not have.
func TestStoreConformance(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			store := sqlstore.Postgres(sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
			lend := testdb.Lend(t, func(t testing.TB) *testdb.DB {
				plain := testdb.Open(t, testdb.Main()[0])
				pool := followedPoolOn(t, plain, mode)
				defer pool.Close()
				db := outboxpgx.DB(pool)
				require.NoError(t, store.CreateSchema(t.Context(), db))
				require.NoError(t, db.Close())
				return plain
			}, testdb.EmptyTables)
			conformance.RunStore(t, func(t *testing.T) conformance.StoreHarness {
				db := closing(t, outboxpgx.DB(followedPoolOn(t, lend(t), mode)))
				return conformance.SQLHarness(store, db, conformance.Postgres)
			})
		})
	}
}

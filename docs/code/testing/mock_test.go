package testing_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// mockedSQL makes the adapter for a pool of go-sqlmock. Begin transactions on db. The outbox
// sends nothing to the mock: its events are in the store.
func mockedSQL(t *testing.T, mock *sql.DB) (db *sql.DB, events *sqltx.Adapter, store *outboxtest.Store) {
	t.Helper()
	db, store = sqltx.Watch(mock), outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	events, err = sqltx.New(db, ob.Writer())
	require.NoError(t, err)
	return db, events, store
}

// mockedPgx makes the adapter for transactions of pgxmock. Its own pool never connects.
func mockedPgx(t *testing.T) (*outboxpgx.Adapter, *outboxtest.Store) {
	t.Helper()
	pool, err := outboxpgx.Open(t.Context(), "postgres://127.0.0.1/unused")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db, store := outboxpgx.DB(pool), outboxtest.NewStore()
	t.Cleanup(func() { _ = db.Close() })
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	events, err := outboxpgx.New(pool, ob.Writer(), outboxpgx.AllowUnmanaged()) // a mock has no connection
	require.NoError(t, err)
	return events, store
}

func TestAMockedPoolNeedsNoExpectation(t *testing.T) {
	t.Parallel()
	// A pool that answers to BEGIN, COMMIT and ROLLBACK alone stands for the mock.
	db, events, store := mockedSQL(t, adaptertest.Nothing(t))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	write := func(id string, end error) error {
		return events.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := events.Write(ctx, tx, orderPlaced.Envelope(id, Order{ID: id}))
			return errors.Join(err, end)
		})
	}
	require.NoError(t, write("o-1", nil))
	require.Error(t, write("o-2", errors.New("out of stock")))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = events.Write(t.Context(), tx, orderPlaced.Envelope("o-3", Order{ID: "o-3"}))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	outboxtest.AssertEmitted(t, store, outboxtest.Event{AggregateID: "o-1"}, outboxtest.Event{AggregateID: "o-3"})
}

// mockTx is a transaction of pgxmock: it has no connection, and panics when it is asked.
type mockTx struct{ pgx.Tx }

func (mockTx) Conn() *pgx.Conn { panic("Conn() is not available in pgxmock") }

func TestAMockedTransactionOfPgxNeedsNoExpectation(t *testing.T) {
	t.Parallel()
	events, store := mockedPgx(t)
	_, err := events.Write(t.Context(), mockTx{}, orderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	require.NoError(t, err)
	outboxtest.AssertEmitted(t, store, outboxtest.Event{AggregateID: "o-1"})
}

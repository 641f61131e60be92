package outboxpgx_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Also the INSERT that goes along in a batch names the schema of the table.
func TestAnotherSearchPathWritesToTheTableOfTheOutbox(t *testing.T) {
	t.Parallel()
	plain := testdb.Open(t, testdb.Main()[0])
	require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), plain.DB))
	pool := newPool(t, plain.DSN, follow)
	ob, err := outbox.New(outbox.Config{DB: closing(t, outboxpgx.DB(pool)), Store: sqlstore.Postgres(), Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	a, err := outboxpgx.New(pool, ob.Writer())
	require.NoError(t, err)
	for range 2 { // before the store knows the schema, and after
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		for _, statement := range []string{"CREATE TEMPORARY TABLE outbox_event (LIKE outbox_event INCLUDING ALL) ON COMMIT DROP", "SET LOCAL search_path TO pg_temp"} {
			_, err = tx.Exec(t.Context(), statement)
			require.NoError(t, err)
		}
		batch := &pgx.Batch{}
		_, err = a.Queue(t.Context(), batch, adaptertest.Event())
		require.NoError(t, err)
		require.NoError(t, tx.SendBatch(t.Context(), batch).Close())
		_, err = a.WriteAll(t.Context(), tx, []outbox.Envelope{adaptertest.Event(), adaptertest.Event()})
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	}
	rows := 0
	require.NoError(t, plain.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&rows))
	require.Equal(t, 6, rows)
}

package outboxpgx_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// newPool opens a pool on the database, followed or plain, after change.
func newPool(t testing.TB, dsn string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 8
	for _, c := range change {
		c(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func follow(config *pgxpool.Config) { outboxpgx.Follow(config.ConnConfig) }

// fixture is a followed pool with the table, an adapter, and a record of what the
// writer's hooks got.
type fixture struct {
	plain  *testdb.DB
	pool   *pgxpool.Pool
	db     *sql.DB
	writer *outbox.Writer
	rec    *adaptertest.Record
	a      *outboxpgx.Adapter
}

func newFixture(t testing.TB, change ...func(*pgxpool.Config)) fixture {
	t.Helper()
	return newFixtureOn(t, testdb.Open(t, testdb.Main()[0]), change...)
}

func newFixtureOn(t testing.TB, plain *testdb.DB, change ...func(*pgxpool.Config)) fixture {
	t.Helper()
	f := fixture{plain: plain}
	f.pool = newPool(t, plain.DSN, append(change, follow)...)
	f.db = closing(t, outboxpgx.DB(f.pool))
	f.writer, f.rec = adaptertest.Writer(t, f.db, "postgres")
	var err error
	f.a, err = outboxpgx.New(f.pool, f.writer)
	require.NoError(t, err)
	return f
}

func closing(t testing.TB, db *sql.DB) *sql.DB {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// written is how many events are in the table.
func (f fixture) written(t testing.TB, want int) {
	t.Helper()
	require.Equal(t, want, adaptertest.Written(t, f.plain.DB))
}

func (f fixture) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := f.pool.Exec(context.WithoutCancel(t.Context()), s)
		require.NoError(t, err)
	}
}

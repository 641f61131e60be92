package pgnotify_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// postgres is the target with pgx and a followed pool.
var postgres = adaptertest.Main()[0]

func TestNotifier(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(t testing.TB, db *testdb.DB) (*pgnotify.Notifier, error){
		"from a pool of stdlib": func(_ testing.TB, db *testdb.DB) (*pgnotify.Notifier, error) { return pgnotify.New(db.DB) },
		"from a pool of pgx": func(t testing.TB, db *testdb.DB) (*pgnotify.Notifier, error) {
			pool, err := pgxpool.New(context.Background(), db.DSN)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return pgnotify.FromPool(pool)
		},
		"from an address": func(_ testing.TB, db *testdb.DB) (*pgnotify.Notifier, error) { return pgnotify.FromDSN(db.DSN) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.RunPostgresNotifier(t, postgres, func(t testing.TB, db *testdb.DB) outbox.Notifier {
				notifier, err := make(t, db)
				require.NoError(t, err)
				return notifier
			})
		})
	}
}

// The listening connection is not one of the pool: a pool of one connection works.
func TestAPoolOfOneConnection(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(db *testdb.DB) *sql.DB{
		"followed": func(db *testdb.DB) *sql.DB { return db.DB },
		"plain":    func(db *testdb.DB) *sql.DB { return db.Via(t, nil).DB },
		"watched":  func(db *testdb.DB) *sql.DB { return sqltx.Watch(db.Via(t, nil).DB) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Open(t, postgres)
			require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), db.DB))
			pool := open(db)
			pool.SetMaxOpenConns(1)
			notifier, err := pgnotify.New(pool)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			heard, ended := make(chan struct{}, 10), make(chan error, 1)
			go func() { ended <- notifier.Listen(ctx, pool, "outbox_event", func() { heard <- struct{}{} }) }()
			<-heard
			require.NoError(t, notifier.Notify(t.Context(), pool, "outbox_event"))
			<-heard
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			require.NoError(t, pool.Close())
		})
	}
}

func TestWrongInput(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, postgres)
	_, err := pgnotify.New(nil)
	require.ErrorContains(t, err, "pgnotify.New db is nil")
	_, err = pgnotify.New(testdb.Open(t, adaptertest.Main()[2]).DB)
	require.ErrorContains(t, err, "pgnotify.New db has the driver *sqlite.Driver, which is not pgx's package stdlib; use pgnotify.FromDSN")
	_, err = pgnotify.FromPool(nil)
	require.ErrorContains(t, err, "pgnotify.FromPool pool is nil")
	_, err = pgnotify.FromDSN("postgres://%")
	require.ErrorContains(t, err, "pgnotify.FromDSN")

	notifier, err := pgnotify.New(db.DB)
	require.NoError(t, err)
	_, err = outbox.New(outbox.Config{DB: db.DB, Store: sqlstore.SQLite(), Notifier: notifier})
	require.ErrorContains(t, err, "Config.Notifier is a *pgnotify.Notifier, which is for postgres; the store is for sqlite")
	require.ErrorContains(t, new(pgnotify.Notifier).Listen(t.Context(), db, "outbox_event", func() {}), "make one with New")

	require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), db.DB))
	other := db.Reopen(t)
	require.NoError(t, db.Close())
	require.ErrorContains(t, notifier.Notify(t.Context(), db, "outbox_event"), "pgnotify: notifying the channel of table outbox_event")
	require.ErrorContains(t, notifier.Listen(t.Context(), other, "outbox_event", func() {}), "sql: database is closed")
	pool, err := pgxpool.New(t.Context(), db.DSN)
	require.NoError(t, err)
	pool.Close()
	closed, err := pgnotify.FromPool(pool)
	require.NoError(t, err)
	require.ErrorContains(t, closed.Listen(t.Context(), other, "outbox_event", func() {}), "closed pool")
}

package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Behind a pooler in transaction mode some drivers fail now and then: Check says so
// each time, and what to do. proof/systemtest has every driver and mode.
func TestCheckRefusesDriversThatAPoolerBreaks(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	store := sqlstore.Postgres()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	dsn := db.PgBouncer(t)
	for _, way := range []struct{ driver, setting, wayOut string }{
		{"pgx", "", "loses prepared statements: with pgx add default_query_exec_mode=exec to the DSN"},
		{"pgx", "&default_query_exec_mode=describe_exec", "with pgx default_query_exec_mode=exec"},
		{"pgx", "&default_query_exec_mode=exec", ""},
		{"postgres", "", "with lib/pq add binary_parameters=yes to the DSN"},
		{"postgres", "&binary_parameters=yes", ""},
		{"pg", "&timeout=30s", ""},
	} {
		t.Run(way.driver+way.setting, func(t *testing.T) {
			pool, err := sql.Open(way.driver, dsn+way.setting)
			require.NoError(t, err)
			defer func() { _ = pool.Close() }()
			for range 3 {
				if err := store.Check(t.Context(), pool, true); way.wayOut == "" {
					require.NoError(t, err)
				} else {
					oneErrorWith(t, err, "pooler in transaction mode", way.wayOut)
				}
			}
		})
	}
}

// One connection is not enough to find a pooler, and no reason to wait or to fail.
func TestCheckNeedsOneConnection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		db.SetMaxOpenConns(1)
		require.NoError(t, store.Check(t.Context(), db.DB, true))
		db.SetMaxOpenConns(2)
		held, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = held.Close() }()
		require.NoError(t, store.Check(t.Context(), db.DB, true))
	})
}

package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// SQLite's :memory: is a database for each connection.
func TestADatabaseInMemoryIsRefusedUnlessItIsShared(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		driver, dsn string
		prepare     func(db *sql.DB) *sql.DB
		refused     bool
	}{
		"modernc":          {"sqlite", ":memory:", nil, true},
		"mattn":            {"sqlite3", ":memory:", nil, true},
		"mode":             {"sqlite", "file:own?mode=memory", nil, true},
		"watched":          {"sqlite", ":memory:", sqltx.Watch, true},
		"shared":           {"sqlite", "file:together?mode=memory&cache=shared", nil, false},
		"memdb":            {"sqlite3", "file:/together?vfs=memdb", nil, false},
		"one connection":   {"sqlite", ":memory:", one, false},
		"watched with one": {"sqlite", ":memory:", func(db *sql.DB) *sql.DB { return sqltx.Watch(one(db)) }, false},
		"a file":           {"sqlite", "file:" + t.TempDir() + "/shop.db", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, err := sql.Open(tc.driver, tc.dsn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, base.Close()) })
			db := base
			if tc.prepare != nil {
				db = tc.prepare(base)
				t.Cleanup(func() { _ = db.Close() })
			}
			store := sqlstore.SQLite()
			require.NoError(t, store.CreateSchema(t.Context(), db))
			err = store.Check(t.Context(), db, true)
			if tc.refused {
				require.ErrorContains(t, err, "each connection of the pool has one of its own; call db.SetMaxOpenConns(1)")
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func one(db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(1)
	return db
}

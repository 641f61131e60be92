package sqlstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// awkwardSchema makes a schema, or a database, whose name needs quotes, and returns a pool
// whose sessions are in it.
func awkwardSchema(t *testing.T, db *testdb.DB) (pool *testdb.DB, name string) {
	t.Helper()
	quote, drop, use, tail := "`", "DROP DATABASE ", "USE ", ""
	if db.Kind == testdb.Postgres {
		quote, drop, use, tail = `"`, "DROP SCHEMA ", "SET search_path TO ", " CASCADE"
	}
	name = fmt.Sprintf("a%s-%d.%d", quote, os.Getpid(), time.Now().UnixNano())
	quoted := quote + strings.ReplaceAll(name, quote, quote+quote) + quote
	_, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+quoted)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), drop+quoted+tail)
		require.NoError(t, err)
	})
	pool = db.Reopen(t)
	pool.SetMaxOpenConns(1) // so that one session is all of them
	_, err = pool.ExecContext(t.Context(), use+quoted)
	require.NoError(t, err)
	return pool, name
}

func TestASchemaWhoseNameNeedsQuotes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, db *testdb.DB) {
		pool, name := awkwardSchema(t, db)
		given := storeFor(db.Kind, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
		require.NoError(t, given.CreateSchema(t.Context(), pool.DB))
		store, ok := given.BindPool(pool.DB, given).(*sqlstore.Store)
		require.True(t, ok)
		require.Same(t, store, store.BindPool(pool.DB, store))
		require.NoError(t, store.Check(t.Context(), pool.DB, true))
		require.Equal(t, name+".outbox_event", store.Table())
		require.Equal(t, "outbox_event", given.Table(), "the store that was given may serve other pools")
		insert(t, store, pool, events("e", 3), "", time.Time{})
		for what, err := range map[string]error{
			"runs": store.CheckRuns(t.Context(), pool.DB), "tenants": store.CheckTenants(t.Context(), pool.DB),
			"notify": storeFor(db.Kind).Notify(t.Context(), pool.DB, store.Table()),
		} {
			require.NoError(t, err, what)
		}
		b, err := store.Claim(t.Context(), pool.DB, outbox.ClaimQuery{Now: time.Now().Add(time.Hour), Limit: 10, Lease: "me/1", LeaseDuration: time.Minute})
		require.NoError(t, err)
		require.Equal(t, 3, b.Len())
	})
}

// A write before Start asks for the schema beside its transaction. It is refused when it gets
// no answer, because the table of its session may be another one.
func TestAWriteThatCannotAskForTheSchemaIsRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, db *testdb.DB) {
		store, pool := storeFor(db.Kind), db.Reopen(t)
		bound := store.BindPool(pool.DB, store)
		write := func() error {
			tx, err := pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			return bound.Insert(t.Context(), tx, events("e", 1), "", time.Time{})
		}
		require.Error(t, write(), "there is no table")
		require.NoError(t, store.CreateSchema(t.Context(), pool.DB))
		bound = store.BindPool(pool.DB, store)
		pool.SetMaxOpenConns(1)
		oneErrorWith(t, write(), "the only connection of the pool is in use by the transaction: call Start")
		require.NoError(t, bound.Check(t.Context(), pool.DB, false))
		require.NoError(t, write())
	})
}

func TestAMissingTableIsReportedWithWhereItWasSought(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	var schema string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
	given := sqlstore.Postgres()
	store := given.BindPool(db.DB, given)
	require.ErrorContains(t, store.Check(t.Context(), db.DB, false), "the table is not in the schemas of the search path ("+schema+")")
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	err = store.Insert(t.Context(), tx, events("e", 1), "", time.Time{})
	oneErrorWith(t, err, "it is not in the schemas of the search path ("+schema+"); create the tables with the command")
}

func TestCreateSchemaWithoutASchemaSaysWhatToDo(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0]).Reopen(t, testdb.Param("search_path", "there_is_no_such_schema"))
	err := sqlstore.Postgres().CreateSchema(t.Context(), db.DB)
	oneErrorWith(t, err, "(SQLSTATE 3F000); create a schema of the connection's search_path first, or correct the search_path")
}

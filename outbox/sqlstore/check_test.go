package sqlstore_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// oneErrorWith fails the test unless the error has the parts and one prefix.
func oneErrorWith(t *testing.T, err error, parts ...string) {
	t.Helper()
	require.Error(t, err)
	for _, part := range parts {
		require.ErrorContains(t, err, part)
	}
	require.Equal(t, 1, strings.Count(err.Error(), "outbox: "), err)
}

func TestCheckNamesTheWaysOutOfAMissingTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind, sqlstore.WithTable("events"))
		waysOut := []string{
			"store.CreateSchema(ctx, db)", "create-schema: true",
			"outbox schema create", "outbox/sqlstore/schema/" + string(db.Kind),
		}
		oneErrorWith(t, store.Check(ctx, db.DB, true), append(waysOut, "on table events")...)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		require.NoError(t, store.Check(ctx, db.DB, true))

		_, err := db.ExecContext(ctx, "DROP TABLE events_control")
		require.NoError(t, err)
		oneErrorWith(t, store.Check(ctx, db.DB, false), append(waysOut, "events_control")...)
		_, err = store.Ranges(ctx, db.DB)
		oneErrorWith(t, err, append(waysOut, "events_control")...)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		require.NoError(t, store.Check(ctx, db.DB, false))

		_, err = db.ExecContext(ctx, "ALTER TABLE events DROP COLUMN tenant_id")
		require.NoError(t, err)
		oneErrorWith(t, store.Check(ctx, db.DB, true), "add the column", "tenant_id", "outbox/sqlstore/schema/"+string(db.Kind))

		// While running, too.
		_, err = db.ExecContext(ctx, "DROP TABLE events")
		require.NoError(t, err)
		_, err = store.Claim(ctx, db.DB, outbox.ClaimQuery{Now: someTime, Limit: 1, Lease: "node/1", LeaseDuration: time.Minute})
		oneErrorWith(t, err, append(waysOut, "claiming due events on table events")...)
		_, err = store.Mark(ctx, db.DB, outbox.OutcomeDone, []outbox.Mark{{EventID: "e"}})
		oneErrorWith(t, err, waysOut...)
		oneErrorWith(t, store.Insert(ctx, db.DB, events("e", 1), "", time.Time{}), waysOut...)
	})
}

func TestCheckKnowsADatabaseOfAnotherDialect(t *testing.T) {
	t.Parallel()
	constructors := map[testdb.Kind]string{
		testdb.Postgres: "sqlstore.Postgres()", testdb.MySQL: "sqlstore.MySQL()", testdb.SQLite: "sqlstore.SQLite()",
	}
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		require.NoError(t, storeFor(db.Kind).CreateSchema(t.Context(), db.DB))
		for kind := range constructors {
			err := storeFor(kind).Check(t.Context(), db.DB, true)
			if kind == db.Kind {
				require.NoError(t, err)
			} else {
				oneErrorWith(t, err, "the store is "+constructors[kind], "use "+constructors[db.Kind])
			}
		}
	})
}

// pretender is a database that reports another version.
type pretender struct {
	*sql.DB
	version string
}

func (p pretender) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	if q == "SELECT version()" {
		q, args = "SELECT ?", []any{p.version}
	}
	return p.DB.QueryContext(ctx, q, args...)
}

func TestCheckLeavesADatabaseThatItDoesNotKnowToTheUser(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[2])
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	require.NoError(t, store.Check(t.Context(), pretender{DB: db.DB, version: "CockroachDB CCL v23.1"}, true))
}

func TestCheckReportsADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	err := sqlstore.Postgres().Check(t.Context(), stranger{}, true)
	oneErrorWith(t, err, "checking the database on table outbox_event", "syntax error near version")
	require.Error(t, sqlstore.Postgres(sqlstore.WithTable("1st")).Check(t.Context(), stranger{}, true))
}

func TestCheckNamesTheStatementThatAddsAMissingIndex(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		names := []string{"outbox_event", strings.Repeat("long_name_", 6)}
		if db.Kind == testdb.SQLite {
			names = append(names, "main.qualified")
		}
		for _, name := range names {
			store := storeFor(db.Kind, sqlstore.WithTable(name))
			require.NoError(t, store.CreateSchema(ctx, db.DB))
			for option, check := range map[string]func(context.Context, outbox.DB) error{
				"sqlstore.WithKeyIndex()": store.CheckRuns, "sqlstore.WithTenantIndex()": store.CheckTenants,
			} {
				err := check(ctx, db.DB)
				oneErrorWith(t, err, option, "on table "+name)
				_, ddl, ok := strings.Cut(err.Error(), "; for this one run: ")
				require.True(t, ok, err)
				_, err = db.ExecContext(ctx, ddl)
				require.NoError(t, err, ddl)
				require.NoError(t, check(ctx, db.DB))
			}
		}
	})
}

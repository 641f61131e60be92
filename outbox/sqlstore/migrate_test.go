package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Rows of each status stay through every way between two versions, and the tables are
// then what a new database gets.
func TestMigratingUpAndDownKeepsTheRows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind, sqlstore.WithKeyIndex())
		tables := map[int]string{}
		from, err := store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		require.Zero(t, from)
		requireVersion(t, 1, store, db)
		tables[1] = fingerprint(t, db)

		insert(t, store, db, events("done", 1), "", time.Time{})
		require.Len(t, deliver(t, store, db, "node/1"), 1)
		insert(t, store, db, events("new", 2), "", time.Time{})
		insert(t, store, db, events("leased", 1), "node/2", time.Now().Add(time.Hour))
		rows := dump(t, db)

		version := 1
		for range 2 {
			for to := 1; to <= sqlstore.SchemaVersion; to++ {
				for _, next := range []int{to, sqlstore.SchemaVersion, to} {
					from, err := store.Migrate(ctx, db.DB, next)
					require.NoError(t, err)
					require.Equal(t, version, from)
					requireVersion(t, next, store, db)
					if tables[next] == "" {
						tables[next] = fingerprint(t, db)
					}
					require.Equal(t, tables[next], fingerprint(t, db))
					require.Equal(t, rows, dump(t, db))
					version = next
				}
			}
		}
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		require.NoError(t, store.Check(ctx, db.DB, true))
		require.Len(t, deliver(t, store, db, "node/3"), 2)

		for version := sqlstore.SchemaVersion; version > 0; version-- {
			execAll(t, db, store.Migrations()[version-1].Down)
			requireVersion(t, version-1, store, db)
		}
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		require.Equal(t, tables[sqlstore.SchemaVersion], fingerprint(t, db))
		require.Empty(t, dump(t, db))
	})
}

// On MySQL and MariaDB a process that dies leaves the first statements behind, and so does
// a tool without transactions on every database.
func TestMigratingGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		migrations, want := store.Migrations(), fingerprint(t, db)
		for i := range migrations {
			_, err := store.Migrate(ctx, db.DB, sqlstore.SchemaVersion)
			require.NoError(t, err)
			up, down := statements(migrations[i].Up), statements(migrations[i].Down)
			for n := range len(up) + 1 {
				for v := len(migrations); v > i; v-- {
					execAll(t, db, migrations[v-1].Down)
				}
				execAll(t, db, strings.Join(up[:n], ""))
				_, err := store.Migrate(ctx, db.DB, sqlstore.SchemaVersion)
				require.NoError(t, err)
				require.Equal(t, want, fingerprint(t, db), "up, %s, %d statements", migrations[i].Name, n)
				require.NoError(t, store.Check(ctx, db.DB, true))
			}
			if i == 0 {
				continue // Migrate does not drop the tables
			}
			_, err = store.Migrate(ctx, db.DB, i)
			require.NoError(t, err)
			before := fingerprint(t, db)
			for n := range len(down) + 1 {
				_, err := store.Migrate(ctx, db.DB, i+1)
				require.NoError(t, err)
				execAll(t, db, strings.Join(down[:n], ""))
				_, err = store.Migrate(ctx, db.DB, i)
				require.NoError(t, err)
				requireVersion(t, i, store, db)
				require.Equal(t, before, fingerprint(t, db), "down, %s, %d statements", migrations[i].Name, n)
			}
		}
	})
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		first := storeFor(db.Kind)
		_, err := first.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		store := storeFor(db.Kind, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex(), sqlstore.WithAgeIndex())
		errs := make(chan error, 6)
		for range cap(errs) {
			go func() {
				_, err := store.Migrate(ctx, db.DB, sqlstore.SchemaVersion)
				errs <- err
			}()
		}
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		requireVersion(t, sqlstore.SchemaVersion, store, db)
		require.NoError(t, store.CheckRuns(ctx, db.DB))
		require.NoError(t, store.CheckTenants(ctx, db.DB))
	})
}

// Writers and deliverers do not notice; make chaos/skew does this to processes of two
// builds.
func TestMigratingWhileOthersWriteAndDeliver(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		_, err := store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		steps, failed := make(chan int), make(chan error)
		go func() {
			var errs []error
			for to := range steps {
				_, err := store.Migrate(ctx, db.DB, to)
				errs = append(errs, err)
			}
			failed <- errors.Join(errs...)
		}()
		for i := range 20 {
			steps <- []int{sqlstore.SchemaVersion, 1}[i%2]
			insert(t, store, db, events(fmt.Sprintf("e%d", i), 1), "", time.Time{})
			require.Len(t, deliver(t, store, db, fmt.Sprintf("node/%d", i)), 1)
		}
		steps <- sqlstore.SchemaVersion
		close(steps)
		require.NoError(t, <-failed)
		require.NoError(t, store.Check(ctx, db.DB, true))
	})
}

// A schema for each tenant: tables of another schema in the search path do not count.
func TestMigratingWorksInTheCurrentSchema(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	ctx, store := t.Context(), sqlstore.Postgres()
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	var shared string
	require.NoError(t, db.QueryRowContext(ctx, "SELECT current_schema()").Scan(&shared))
	_, err := db.ExecContext(ctx, "CREATE SCHEMA "+shared+"_tenant")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), "DROP SCHEMA "+shared+"_tenant CASCADE")
		require.NoError(t, err)
	})
	tenant := db.Reopen(t, testdb.Param("search_path", shared+"_tenant,"+shared))
	requireVersion(t, 0, store, tenant)
	require.NoError(t, store.CreateSchema(ctx, tenant.DB))
	requireVersion(t, sqlstore.SchemaVersion, store, tenant)
	var tables int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM pg_tables WHERE tablename = 'outbox_event' AND schemaname = $1", shared+"_tenant").Scan(&tables))
	require.Equal(t, 1, tables)
}

func TestCreateSchemaBringsAnOldTableToItsVersion(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		_, err := store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		require.NoError(t, store.Check(ctx, db.DB, true))
		require.NoError(t, storeFor(db.Kind, sqlstore.WithKeyIndex()).CreateSchema(ctx, db.DB))
		require.NoError(t, store.CheckRuns(ctx, db.DB), "an option's index is added")
	})
}

func TestMigrateRefusesVersionsThatDoNotExist(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[2])
	store := sqlstore.SQLite()
	for _, to := range []int{-1, 0, sqlstore.SchemaVersion + 1} {
		_, err := store.Migrate(t.Context(), db.DB, to)
		oneErrorWith(t, err, fmt.Sprintf("sqlstore.Store.Migrate to is %d; the versions are 1 to %d", to, sqlstore.SchemaVersion))
		requireVersion(t, 0, store, db)
	}
	bad := sqlstore.SQLite(sqlstore.WithTable("a b"))
	require.Empty(t, bad.Migrations())
	_, err := bad.Migrate(t.Context(), db.DB, 1)
	require.ErrorContains(t, err, "sqlstore.WithTable")
	_, err = bad.SchemaVersion(t.Context(), db.DB)
	require.ErrorContains(t, err, "sqlstore.WithTable")
}

// Tables whose version row is the newest may still lack an index or the control table.
func TestCreateSchemaAddsWhatIsMissingOfTheNewestVersion(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		want := fingerprint(t, db)
		insert(t, store, db, events("kept", 1), "", time.Time{})
		rows := dump(t, db)

		broken := []string{"DROP TABLE outbox_event_control"}
		for _, index := range []string{"due", "done", "dead"} {
			switch {
			case db.Kind != testdb.MySQL:
				broken = append(broken, "DROP INDEX idx_outbox_event_"+index)
			case index != "dead":
				broken = append(broken, "DROP INDEX idx_outbox_event_"+index+" ON outbox_event")
			}
		}
		for _, statement := range broken {
			_, err := db.ExecContext(ctx, statement)
			require.NoError(t, err)
			require.NotEqual(t, want, fingerprint(t, db))
			require.NoError(t, store.CreateSchema(ctx, db.DB))
			require.Equal(t, want, fingerprint(t, db), statement)
		}
		for _, statement := range broken {
			_, err := db.ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		require.Equal(t, want, fingerprint(t, db), "everything at once")
		require.Equal(t, rows, dump(t, db))
	})
}

// A transaction that writes must not hold up a start with create-schema: true.
func TestCreateSchemaOfTablesThatAreThereWaitsForNoWriter(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind, sqlstore.WithKeyIndex())
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		require.NoError(t, store.Insert(t.Context(), tx, events("open", 1), "", time.Time{}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, store.CreateSchema(ctx, db.DB))
	})
}

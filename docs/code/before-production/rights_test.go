// Package rights_test holds what docs/how-to/before-production.md and docs/reference/sql.md say of
// the rights of the database's users.
package rights_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// users are pools of the two users that the page creates.
type users struct{ migrates, serves *sql.DB }

// usersOf runs the statements of the page, except those that need the tables: grant runs these.
func usersOf(t *testing.T, db *testdb.DB) (u users, grant func()) {
	t.Helper()
	page, err := os.ReadFile("../../reference/sql.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(CREATE (?:ROLE|USER) .*?)```").FindAllSubmatch(page, -1)
	require.Len(t, blocks, 2, "PostgreSQL, MySQL")
	suffix := strconv.FormatInt(time.Now().UnixNano(), 10)
	migrates, serves := "migrates_"+suffix, "serves_"+suffix
	names := []string{"orders_migrate", migrates, "orders_service", serves, "'…'", "'secret'"}
	text, dsnOf, driver := blocks[0][1], func(string) string { return "" }, "pgx"
	run := func(statements string) {
		statements = strings.NewReplacer(names...).Replace(statements)
		for statement := range strings.SplitSeq(strings.TrimSpace(statements), ";\n") {
			_, err := db.ExecContext(context.WithoutCancel(t.Context()), strings.TrimSuffix(statement, ";"))
			require.NoError(t, err, statement)
		}
	}
	if db.Kind == testdb.Postgres {
		var schema string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
		names = append(names, "SCHEMA public", "SCHEMA "+schema)
		address, err := url.Parse(db.DSN)
		require.NoError(t, err)
		dsnOf = func(user string) string {
			address.User = url.UserPassword(user, "secret")
			return address.String()
		}
		t.Cleanup(func() {
			run(fmt.Sprintf("DROP OWNED BY %s, %s;\nDROP ROLE %s, %s", serves, migrates, serves, migrates))
		})
	} else {
		text, driver = blocks[1][1], "mysql"
		config, err := mysql.ParseDSN(db.DSN)
		require.NoError(t, err)
		names = append(names, "orders.", config.DBName+".")
		dsnOf = func(user string) string {
			config.User, config.Passwd = user, "secret"
			return config.FormatDSN()
		}
		t.Cleanup(func() { run(fmt.Sprintf("DROP USER %s, %s", serves, migrates)) })
	}
	before, after, found := strings.Cut(string(text), "-- When orders_migrate has created the tables:\n")
	require.True(t, found)
	run(before)
	open := func(user string) *sql.DB {
		pool, err := sqltx.Open(driver, dsnOf(user))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		return pool
	}
	return users{open(migrates), open(serves)}, func() { run(after) }
}

// requireAlters asks as the page does whether the user may alter the tables.
func requireAlters(t *testing.T, kind testdb.Kind, db *sql.DB, want bool) {
	t.Helper()
	if kind == testdb.Postgres {
		var may bool
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT pg_has_role(relowner, 'USAGE') AS can_alter FROM pg_class WHERE oid = 'outbox_event'::regclass").Scan(&may))
		require.Equal(t, want, may)
		return
	}
	rows, err := db.QueryContext(t.Context(), "SHOW GRANTS")
	require.NoError(t, err)
	defer rows.Close()
	var all strings.Builder
	for rows.Next() {
		var grant string
		require.NoError(t, rows.Scan(&grant))
		all.WriteString(grant)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, want, strings.Contains(all.String(), "ALTER"))
}

func TestRightsToReadAndWriteBothTablesAreEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../how-to/before-production.md")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(page)), " "), "`SELECT`, `INSERT`, `UPDATE` and `DELETE` on both tables")
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, admin *testdb.DB) {
		ctx := t.Context()
		users, grant := usersOf(t, admin)
		store, err := sqlstore.Detect(ctx, users.migrates)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, users.migrates))
		for _, version := range []int{1, sqlstore.SchemaVersion} {
			_, err = store.Migrate(ctx, users.migrates, version)
			require.NoError(t, err)
		}
		grant()
		db := users.serves
		for _, statement := range []string{"CREATE TABLE another (id INT)", "ALTER TABLE outbox_event ADD COLUMN another INT", "DROP TABLE outbox_event"} {
			_, err = db.ExecContext(ctx, statement)
			require.Error(t, err, statement)
		}
		requireAlters(t, admin.Kind, users.migrates, true)
		requireAlters(t, admin.Kind, db, false)

		ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}, Purge: &outbox.PurgeOptions{}})
		require.NoError(t, err)
		died := make(chan struct{})
		require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
			defer close(died)
			return outbox.Dead(fmt.Errorf("refused"))
		}))))
		require.NoError(t, ob.Start(ctx))
		a, err := sqltx.New(db, ob.Writer())
		require.NoError(t, err)
		require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.Write(ctx, tx, outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", Payload: outbox.JSON(1)})
			return err
		}))
		<-died
		require.Eventually(t, func() bool {
			stats, err := ob.Stats(ctx)
			return err == nil && stats.Dead == 1
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, ob.Pause(ctx, outbox.Pause{Kind: outbox.EventKind{AggregateType: "Order", EventType: "OrderPlaced"}}))
		n, err := ob.DeadLetters().ReplayAll(ctx, outbox.DeadFilter{}, 0)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, err = ob.Nodes(ctx)
		require.NoError(t, err)
		_, err = ob.Purge(ctx)
		require.NoError(t, err)
		require.NoError(t, ob.Close(context.Background()))
	})
}

// Package rights_test holds what docs/how-to/before-production.md says of the rights of the
// database's user.
package rights_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
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

const rights = "SELECT, INSERT, UPDATE, DELETE"

// userOf creates a user that has these rights on both tables, and returns a pool of it.
func userOf(t *testing.T, db *testdb.DB) *sql.DB {
	t.Helper()
	user := fmt.Sprintf("rights_%d", time.Now().UnixNano())
	run := func(statement string) {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement)
		require.NoError(t, err, statement)
	}
	driver, dsn := "mysql", ""
	if db.Kind == testdb.Postgres {
		var schema string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
		run("CREATE ROLE " + user + " LOGIN PASSWORD 'secret'")
		t.Cleanup(func() { run("DROP OWNED BY " + user); run("DROP ROLE " + user) })
		run("GRANT USAGE ON SCHEMA " + schema + " TO " + user)
		run("GRANT " + rights + " ON outbox_event, outbox_event_control TO " + user)
		address, err := url.Parse(db.DSN)
		require.NoError(t, err)
		address.User = url.UserPassword(user, "secret")
		driver, dsn = "pgx", address.String()
	} else {
		config, err := mysql.ParseDSN(db.DSN)
		require.NoError(t, err)
		run("CREATE USER " + user + " IDENTIFIED BY 'secret'")
		t.Cleanup(func() { run("DROP USER " + user) })
		for _, table := range []string{"outbox_event", "outbox_event_control"} {
			run("GRANT " + rights + " ON " + config.DBName + "." + table + " TO " + user)
		}
		config.User, config.Passwd = user, "secret"
		dsn = config.FormatDSN()
	}
	pool, err := sqltx.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

func TestRightsToReadAndWriteBothTablesAreEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../how-to/before-production.md")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(page)), " "), "`SELECT`, `INSERT`, `UPDATE` and `DELETE` on both tables")
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, admin *testdb.DB) {
		ctx := t.Context()
		store, err := sqlstore.Detect(ctx, admin.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, admin.DB))
		db := userOf(t, admin)
		_, err = db.ExecContext(ctx, "CREATE TABLE another (id INT)")
		require.Error(t, err, "it may not create tables")

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

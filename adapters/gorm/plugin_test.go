package outboxgorm_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// backends are the ids of the sessions that other pools than this one have on the test's
// database.
func backends(t *testing.T, plain *testdb.DB) (ids []int64) {
	t.Helper()
	query := map[testdb.Kind]string{
		testdb.Postgres: "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'plugin' ORDER BY 1",
		testdb.MySQL:    "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY 1",
	}[plain.Kind]
	rows, err := plain.QueryContext(t.Context(), query)
	for sqlerr.HasNumber(err, 3854) { // a session of another test runs a statement with an emoji
		rows, err = plain.QueryContext(t.Context(), query)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}

func use(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		require.NoError(t, conn.PingContext(t.Context()))
	}
}

// db.DB() is as it is without the plugin.
func TestPluginKeepsTheSettingsOfThePool(t *testing.T) {
	t.Parallel()
	servers := slices.DeleteFunc(testdb.Main(), func(target testdb.Target) bool { return target.Kind == testdb.SQLite })
	testdb.Each(t, servers, func(t *testing.T, plain *testdb.DB) {
		plain.SetMaxOpenConns(1) // its other sessions would be counted
		dsn := map[testdb.Kind]string{testdb.Postgres: plain.DSN + "&application_name=plugin", testdb.MySQL: plain.DSN}[plain.Kind]
		opens := map[testdb.Kind]func(string) gorm.Dialector{testdb.Postgres: postgres.Open, testdb.MySQL: mysql.Open}[plain.Kind]
		db, err := gorm.Open(opens(dsn), &gorm.Config{Logger: logger.Discard}, outboxgorm.Plugin{})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		pool.SetMaxIdleConns(5)
		pool.SetMaxOpenConns(7)
		use(t, pool, 7)
		becomes(t, func() bool { return len(backends(t, plain)) == 5 })
		require.Equal(t, 7, pool.Stats().MaxOpenConnections)
		require.Equal(t, 5, pool.Stats().Idle)

		pool.SetMaxIdleConns(1)
		becomes(t, func() bool { return len(backends(t, plain)) == 1 })
		first := backends(t, plain)
		pool.SetConnMaxLifetime(100 * time.Millisecond)
		becomes(t, func() bool {
			use(t, pool, 1)
			now := backends(t, plain)
			return len(now) == 1 && now[0] != first[0]
		})
		pool.SetConnMaxLifetime(0)
		use(t, pool, 1)
		require.NoError(t, pool.Close())
		becomes(t, func() bool { return len(backends(t, plain)) == 0 })
	})
}

// A pool that the user gave to GORM stays the user's.
func TestPluginLeavesAGivenPoolOpen(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	plain := f.pool.Via(t, nil)
	plain.SetMaxOpenConns(3)
	db := open(t, plain, &gorm.Config{})
	require.NoError(t, db.Use(outboxgorm.Plugin{}))
	pool, err := db.DB()
	require.NoError(t, err)
	use(t, pool, 1)
	require.NoError(t, pool.Close())
	require.NoError(t, plain.PingContext(t.Context()))
	require.Equal(t, 3, plain.Stats().MaxOpenConnections)
}

func becomes(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		require.True(t, time.Now().Before(deadline), "never")
		time.Sleep(20 * time.Millisecond)
	}
}

package sqltx_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func TestEndOfTheContextDoesNotInterruptCommit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, direct *testdb.DB) {
		proxied, waiting, release := direct.HoldCommits(t)
		createTable(t, direct.DB)
		f := newFixture(t, followedPool(t, proxied), string(direct.Kind))
		ctx, cancel := context.WithCancel(t.Context())
		commitWhile(ctx, t, f, func() {
			<-waiting
			cancel()
		}, release)
		require.Equal(t, 1, written(t, direct.DB))
	})
}

// COMMIT waits for a reader, unless in WAL mode.
func TestEndOfTheContextDoesNotInterruptCommitOnSQLite(t *testing.T) {
	t.Parallel()
	for target, driver := range map[string]string{"sqlite": "sqlite", "sqlite/mattn": "sqlite3"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			dsn := "file:" + filepath.Join(t.TempDir(), "commit.db") // testdb's would be in WAL mode
			open := func(busyTimeout string) *sql.DB {
				db, err := sqltx.Open(driver, dsn)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				db.SetMaxOpenConns(1)
				exec(t, db, "PRAGMA busy_timeout = "+busyTimeout)
				return db
			}
			writing, reading, probe := open("30000"), open("0"), open("0")
			createTable(t, writing)
			f := newFixture(t, writing, "sqlite")
			rows, err := reading.QueryContext(t.Context(), "SELECT 1 FROM sqlite_master UNION ALL SELECT 1 FROM sqlite_master")
			require.NoError(t, err)
			require.True(t, rows.Next())
			ctx, cancel := context.WithCancel(t.Context())
			commitWhile(ctx, t, f, func() {
				require.Eventually(t, func() bool { // a COMMIT that waits for readers lets no new one in
					var n int
					return probe.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM sqlite_master").Scan(&n) != nil
				}, 20*time.Second, time.Millisecond)
				cancel()
			}, func() { require.NoError(t, rows.Close()) })
			require.NoError(t, rows.Err())
			require.Equal(t, 1, written(t, writing))
		})
	}
}

// commitWhile writes an event in a transaction of the context and commits it. COMMIT
// waits until release is called; meanwhile ends the context when COMMIT waits.
func commitWhile(ctx context.Context, t *testing.T, f fixture, meanwhile, release func()) {
	t.Helper()
	tx, err := f.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	write(t, f.a, tx)
	result := make(chan error, 1)
	go func() { result <- tx.Commit() }()
	meanwhile()
	require.Never(t, func() bool { return len(result) > 0 }, 200*time.Millisecond, 10*time.Millisecond, "an interruption would come at once")
	release()
	require.NoError(t, <-result)
	f.rec.Eventually(t, "commit")
}

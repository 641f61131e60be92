package sqlstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// waiting counts the sessions whose statement waits for a lock in the test's
// database; on MySQL also those about to wait.
var waiting = map[testdb.Kind]string{
	testdb.Postgres: "SELECT COUNT(*) FROM pg_stat_activity AS a JOIN pg_locks AS l ON l.pid = a.pid" +
		" WHERE l.relation = 'outbox_event'::regclass AND a.wait_event_type = 'Lock'",
	testdb.MySQL: "SELECT COUNT(*) FROM information_schema.PROCESSLIST" +
		" WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO LIKE '%status = 1%'",
}

// A mark waits for a row; its client gives up; the same node claims the row again.
// Then the server executes the mark. It must change only the other row, whose
// lease is still the one that the mark names.
func TestAStatementThatTheServerCarriesOutLateChangesOnlyItsOwnLease(t *testing.T) {
	t.Parallel()
	var servers []testdb.Target
	for _, target := range testdb.Main() {
		if target.Kind != testdb.SQLite {
			servers = append(servers, target)
		}
	}
	testdb.Each(t, servers, func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for _, beside := range []string{"node/1", "node/7"} { // one lease, and several
			carriedOut := false
			// MariaDB aborts a statement that waited for a second: then the test
			// has shown nothing and runs again.
			for try := 0; try < 20 && !carriedOut; try++ {
				carriedOut = carriedOutLate(t, db, store, fmt.Sprint(beside, " ", try), beside)
			}
			require.True(t, carriedOut, "the server never carried the statement out")
		}
	})
}

func carriedOutLate(t *testing.T, db *testdb.DB, store outbox.Store, name, besideLease string) bool {
	t.Helper()
	ctx := t.Context()
	envs := events(name, 2) // the statement reaches the first one first
	lost, beside := envs[0].EventID, envs[1].EventID
	due := time.Now().Add(time.Hour)
	require.NoError(t, store.Insert(ctx, db.DB, envs[:1], "node/1", due))
	require.NoError(t, store.Insert(ctx, db.DB, envs[1:], besideLease, due))

	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	claimAgain := "UPDATE outbox_event SET locked_by = 'node/2' WHERE event_id = '" + lost + "'"
	_, err = tx.ExecContext(ctx, claimAgain)
	require.NoError(t, err)

	severable, sever := db.Severable(t)
	answer := make(chan error, 1)
	go func() {
		_, err := store.Mark(context.WithoutCancel(ctx), severable.DB, outbox.OutcomeDone, []outbox.Mark{
			{EventID: lost, Lease: "node/1"}, {EventID: beside, Lease: besideLease},
		})
		answer <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		err := db.QueryRowContext(ctx, waiting[db.Kind]).Scan(&n)
		// MySQL cannot read the list while a session of another test runs a statement with an emoji.
		return err == nil && n > 0
	}, time.Minute, time.Millisecond)
	sever()
	require.Error(t, <-answer, "the client gave up")
	require.NoError(t, tx.Commit())

	row := func(id string) (status int, lease string) {
		require.NoError(t, db.QueryRowContext(ctx, "SELECT status, COALESCE(locked_by, '') FROM outbox_event WHERE event_id = '"+id+"'").Scan(&status, &lease))
		return status, lease
	}
	ends := time.Now().Add(2 * time.Second)
	status, _ := row(beside)
	for status != 1 && time.Now().Before(ends) {
		status, _ = row(beside)
	}
	if status != 1 {
		return false
	}
	status, lease := row(lost)
	require.Zero(t, status, "the row was marked by a statement of an older lease")
	require.Equal(t, "node/2", lease)
	return true
}

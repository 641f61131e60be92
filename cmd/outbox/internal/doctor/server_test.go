package doctor_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestIsolationThatDoesNotSuitIsFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.over(t, w.Reopen(t, testdb.Param("default_transaction_isolation", "serializable")).DB)
	w.requireFinding(t, "isolation", doctor.Note, "serializable")
	for level, want := range map[string]doctor.Level{"SERIALIZABLE": doctor.Note, "READ-UNCOMMITTED": doctor.Failure} {
		w := admit(t, testdb.Open(t, testdb.Main()[1]))
		w.over(t, w.Reopen(t, testdb.Param(isolationVariable(t, w), "%27"+level+"%27")).DB)
		w.requireFinding(t, "isolation", want, "transactions are")
	}
}

// isolationVariable is the name that the server knows.
func isolationVariable(t *testing.T, w *ward) string {
	t.Helper()
	rows, err := w.QueryContext(t.Context(), "SHOW VARIABLES LIKE 'transaction_isolation'")
	require.NoError(t, err)
	defer rows.Close()
	if rows.Next() {
		return "transaction_isolation"
	}
	return "tx_isolation"
}

func TestStorageThatDoesNotSuitIsFound(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		w := admit(t, testdb.Open(t, testdb.Main()[0]))
		w.run(t, "ALTER TABLE outbox_event RESET (fillfactor)")
		w.requireFinding(t, "storage", doctor.Note, "fillfactor is 100")
	})
	t.Run("mysql", func(t *testing.T) {
		w := admit(t, testdb.Open(t, testdb.Main()[1]))
		w.run(t, "ALTER TABLE outbox_event ROW_FORMAT = COMPACT", "ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
		w.run(t, w.requireFinding(t, "storage", doctor.Note, "COMPACT").WayOut)
		w.run(t, w.requireFinding(t, "storage", doctor.Warning, "utf8mb4_general_ci").WayOut)
		require.Equal(t, doctor.OK, doctor.Worst(of(w.examine(t), "storage")), "the way out works")
		w.run(t, "ALTER TABLE outbox_event ENGINE = MyISAM")
		w.run(t, w.requireFinding(t, "storage", doctor.Failure, "MyISAM").WayOut)
		require.Equal(t, doctor.OK, doctor.Worst(of(w.examine(t), "storage")), "the way out works")
	})
	t.Run("sqlite", func(t *testing.T) {
		db := testdb.Open(t, testdb.Main()[2])
		db.SetMaxOpenConns(1)
		w := admit(t, db)
		w.run(t, "PRAGMA journal_mode = DELETE")
		w.requireFinding(t, "storage", doctor.Note, "delete")
	})
}

func TestAutovacuumThatIsOffOrLateIsFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.run(t, "ALTER TABLE outbox_event SET (autovacuum_enabled = false)", "ALTER TABLE outbox_event RESET (autovacuum_vacuum_scale_factor)")
	w.run(t, w.requireFinding(t, "vacuum", doctor.Failure, "autovacuum is off for outbox_event").WayOut)
	w.run(t, w.requireFinding(t, "vacuum", doctor.Note, "comes late").WayOut)
	for _, f := range of(w.examine(t), "vacuum") {
		require.NotContains(t, f.Seen, "autovacuum is off for outbox_event")
		require.NotContains(t, f.Seen, "comes late")
	}
}

func TestManyDeadRowsAreAWarning(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.run(t, "ALTER TABLE outbox_event SET (autovacuum_enabled = false)")
	w.insert(t, "e1", "", 0)
	for range 5 {
		w.run(t, "UPDATE outbox_event SET attempts = attempts + 1")
	}
	w.cfg.Limits.DeadRows = 2
	require.Eventually(t, func() bool { // the server's statistics come later
		w.run(t, "SELECT 1")
		for _, f := range of(w.examine(t), "vacuum") {
			if f.Level == doctor.Warning && contains(f.WayOut, "VACUUM") {
				return true
			}
		}
		return false
	}, 30*time.Second, 100*time.Millisecond)
}

func TestAClockThatDiffersIsAWarning(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.cfg.Now = func() time.Time { return time.Now().Add(-time.Hour) }
		w.requireFinding(t, "clock", doctor.Warning, "ahead of")
		w.cfg.Now = func() time.Time { return time.Now().Add(time.Hour) }
		w.requireFinding(t, "clock", doctor.Warning, "behind")
	})
}

func TestOldTransactionsAreAWarning(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		tx, err := w.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var n int
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&n))
		w.cfg.Limits.Transaction = time.Millisecond
		f := w.requireFinding(t, "transactions", doctor.Warning, "older than 1ms")
		require.NotContains(t, f.Seen, "SELECT COUNT", "a statement may contain data")
	})
}

// MySQL's table of transactions has the text of each running statement, in utf8mb3, and an
// error in place of all rows when a text has other characters.
func TestAStatementOfAnotherSessionDoesNotHideTransactions(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		tx, err := w.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		var n int
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&n))
		statement := "SELECT SLEEP(20), '\U0001F600'"
		if db.Kind == testdb.Postgres {
			statement = "SELECT pg_sleep(20), '\U0001F600'"
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = tx.ExecContext(ctx, statement)
			_ = tx.Rollback()
		}()
		defer func() { cancel(); <-ended }()
		w.cfg.Limits.Transaction = time.Millisecond
		w.requireFinding(t, "transactions", doctor.Warning, "older than 1ms")
		w.cfg.Limits.Transaction = time.Hour
		require.Equal(t, doctor.OK, doctor.Worst(of(w.examine(t), "transactions")))
	})
}

// MySQL says when a transaction began in the time zone of the server.
func TestATimeZoneOfTheSessionDoesNotChangeTheAgeOfTransactions(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[1]))
	tx, err := w.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&n))
	for _, zone := range []string{"%27-05:00%27", "%27%2B05:00%27"} {
		w.over(t, w.Reopen(t, testdb.Param("time_zone", zone)).DB)
		w.cfg.Limits.Transaction = time.Hour
		findings := of(w.examine(t), "transactions")
		require.Equal(t, doctor.OK, doctor.Worst(findings), "%s: %v", zone, findings)
		w.cfg.Limits.Transaction = time.Millisecond
		w.requireFinding(t, "transactions", doctor.Warning, "older than 1ms")
	}
}

func TestALiveNodeThatDoesNotDeliverIsAWarning(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		long := time.Now().UTC().Add(-12 * time.Hour)
		node := outbox.Node{Owner: "stuck", Mode: "single-node", Started: long, LastPoll: long}
		require.NoError(t, w.store.Announce(t.Context(), w.DB, node, time.Minute))
		require.Equal(t, doctor.OK, doctor.Worst(of(w.examine(t), "nodes")), "a standby does not poll")
		node.Mode = "multi-node"
		require.NoError(t, w.store.Announce(t.Context(), w.DB, node, time.Minute))
		w.requireFinding(t, "nodes", doctor.Warning, "stuck reports, but has not polled for 12h0m")
		w.announce(t, "stuck", "multi-node", time.Minute)
		w.insert(t, "e1", "stuck/1", 3*time.Hour)
		require.Equal(t, doctor.OK, doctor.Worst(of(w.examine(t), "nodes")))
		w.run(t, "UPDATE outbox_event SET locked_at = created_at")
		w.requireFinding(t, "nodes", doctor.Warning, "the oldest of its 1 leases is 3h0m")
	})
}

func TestAReaderOfTheLogThatIsBehindIsAWarning(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		now := time.Now().UTC()
		node := outbox.Node{Owner: "log", Mode: "log", Started: now.Add(-time.Hour), LastPoll: now, Log: &outbox.LogLag{Behind: 1, Kept: 3e9, Left: 3e9}}
		for _, left := range []int64{-1, 3e9} {
			node.Log.Left = left
			require.NoError(t, w.store.Announce(t.Context(), w.DB, node, time.Minute))
			require.Equal(t, doctor.OK, doctor.Worst(of(w.examine(t), "nodes")))
		}
		node.Log.Left = 2e9
		require.NoError(t, w.store.Announce(t.Context(), w.DB, node, time.Minute))
		w.requireFinding(t, "nodes", doctor.Warning, "log has not published when it has grown by 2 GB")
		node.Log.Left, node.LastPoll = -1, time.Time{}
		require.NoError(t, w.store.Announce(t.Context(), w.DB, node, time.Minute))
		w.requireFinding(t, "nodes", doctor.Warning, "log has not published the whole log of the database for 1h0m")
	})
}

func TestRowsThatNothingMarksAsDeliveredAreNoted(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		const text = "nothing marks rows as delivered"
		isNoted := func() bool {
			return slices.ContainsFunc(w.examine(t), func(f doctor.Finding) bool { return contains(f.Seen, text) })
		}
		now := time.Now().UTC()
		node := outbox.Node{Owner: "log", Mode: "log", Started: now, LastPoll: now, Log: &outbox.LogLag{Behind: 1, Kept: 1, Left: -1}}
		require.NoError(t, w.store.Announce(t.Context(), w.DB, node, time.Minute))
		require.False(t, isNoted(), "the table is empty")
		w.insert(t, "young", "", 7*24*time.Hour)
		require.False(t, isNoted(), "the default purge may not have run yet")
		w.insert(t, "old", "", 9*24*time.Hour)
		f := w.requireFinding(t, "backlog", doctor.Note, text+", and the oldest row is 9 days old")
		require.Contains(t, f.WayOut, "PurgeOptions.Undelivered")
		require.Equal(t, doctor.Note, doctor.Worst(of(w.examine(t), "backlog")))

		w.announce(t, "writer", "writer-only", time.Minute)
		require.True(t, isNoted(), "a writer marks nothing")
		w.announce(t, "worker", "multi-node", time.Minute)
		require.False(t, isNoted(), "a process delivers from the table")
		w.announce(t, "worker", "multi-node", -time.Second)
		require.True(t, isNoted(), "the process died")
		w.run(t, "UPDATE outbox_event SET status = 1, done_at = available_at")
		require.False(t, isNoted(), "delivered rows are purged by their end")
		w.run(t, "UPDATE outbox_event SET status = 0, done_at = NULL")
		require.NoError(t, w.store.Announce(t.Context(), w.DB, node, -time.Second))
		require.False(t, isNoted(), "no reader of the log is known")
	})
}

func TestFewConnectionsLeftAreAWarning(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.cfg.Limits.FreeConnections = 1_000_000
		w.requireFinding(t, "connections", doctor.Warning, "connections are in use")
	})
}

func TestAPoolerIsNoted(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	w := admit(t, db)
	pool, err := sql.Open("pgx", db.PgBouncer(t)+"&default_query_exec_mode=exec")
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	w.over(t, pool)
	w.requireFinding(t, "pooler", doctor.Note, "PgBouncer")
}

func TestNodesThatDoNotReportAreFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.requireFinding(t, "nodes", doctor.Note, "no process reports")
		w.insert(t, "e1", "old/1", time.Hour)
		w.requireFinding(t, "nodes", doctor.Note, "old has 1 leases and does not report")
		w.announce(t, "old", "multi-node", -time.Second)
		w.requireFinding(t, "nodes", doctor.Warning, "old has 1 leases and has not reported for")
		w.cfg.Limits.Lease = time.Nanosecond
		require.Eventually(t, func() bool {
			return contains(of(w.examine(t), "nodes")[0].Seen, "1 leases of old have expired")
		}, 10*time.Second, 100*time.Millisecond)
		w.announce(t, "a", "multi-node", time.Minute)
		w.announce(t, "b", "single-node", time.Minute)
		w.requireFinding(t, "nodes", doctor.Warning, "2 processes deliver in 2 different modes")
		ranges, err := w.store.Ranges(t.Context(), w.DB)
		require.NoError(t, err)
		_, err = w.store.SetRanges(t.Context(), w.DB, "", ranges.Now.Add(time.Minute), outbox.Ranges{
			Version: "1", Ranges: []outbox.Range{{Name: "old", Until: ranges.Now.Add(time.Minute)}},
		})
		require.NoError(t, err)
		w.requireFinding(t, "nodes", doctor.Warning, "old holds the table and does not report")
	})
}

func TestABacklogIsFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.insert(t, "e1", "", time.Hour)
		w.insert(t, "e2", "", time.Hour)
		_, err := w.store.Mark(t.Context(), w.DB, outbox.OutcomeDead, []outbox.Mark{{EventID: "e2", Error: "x", Attempts: 1}})
		require.NoError(t, err)
		require.NoError(t, w.cfg.Outbox.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "T"}}))
		w.requireFinding(t, "backlog", doctor.Warning, "1 events are due, the oldest for 1h0m")
		w.requireFinding(t, "backlog", doctor.Note, "1 events are dead")
		w.requireFinding(t, "backlog", doctor.Note, "1 types of events are paused")
		progress := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		_, err = w.store.SetReplay(t.Context(), w.DB, "", outbox.ReplayRow{
			Name: "r", Version: "1", Value: `{"id":"1","name":"r","rate":1,"state":"running","progress":"` + progress + `"}`,
		}, nil)
		require.NoError(t, err)
		w.requireFinding(t, "backlog", doctor.Warning, "a replay of delivered events has made no progress for 1h0m")
	})
}

func TestADeadEventThatBlocksItsKeyIsFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db, sqlstore.WithKeyIndex())
		w.insert(t, "e1", "", time.Hour)
		_, err := w.store.Mark(t.Context(), w.DB, outbox.OutcomeDead, []outbox.Mark{{EventID: "e1", Error: "x", Attempts: 1}})
		require.NoError(t, err)
		w.announce(t, "node", "multi-node", time.Minute)
		require.NotContains(t, w.requireFinding(t, "backlog", doctor.Note, "1 events are dead").Seen, "key")
		w.announce(t, "node", "ordered-by-key", time.Minute)
		f := w.requireFinding(t, "backlog", doctor.Note, "each holds back the later events of its key")
		require.Contains(t, f.WayOut, "those behind them")
	})
}

// Deferred events are never due for long, so that a backlog of them looks healthy.
func TestDeferredEventsWithoutAListenerAreFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.insert(t, "e1", "", 0)
		_, err := w.store.Mark(t.Context(), w.DB, outbox.OutcomeDeferred, []outbox.Mark{{
			EventID: "e1", AvailableAt: time.Now().Add(time.Minute), Error: "no listener for Order/Lost in the process that took it; deferred by 1m0s",
		}})
		require.NoError(t, err)
		w.requireFinding(t, "backlog", doctor.Warning, "1 of the first 1 events that wait have no listener")
	})
}

// Events of a kind that every process leaves to others wait for ever.
func TestKindsWithoutAListenerAreFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		kind := func(name outbox.EventType) outbox.EventKind {
			return outbox.EventKind{AggregateType: "Order", EventType: name}
		}
		report := func(owner string, d time.Duration, kinds, unheard []outbox.EventKind) {
			require.NoError(t, w.store.Announce(t.Context(), w.DB, outbox.Node{Owner: owner, Mode: "multi-node", LastPoll: time.Now(), Kinds: kinds, Unheard: unheard}, d))
		}
		report("older", time.Minute, []outbox.EventKind{kind("Placed")}, []outbox.EventKind{kind("Shipped"), kind("Lost")})
		report("newer", time.Minute, []outbox.EventKind{kind("Placed"), kind("Shipped")}, nil)
		report("gone", -time.Second, []outbox.EventKind{kind("Lost")}, []outbox.EventKind{kind("Forgotten")})
		f := w.requireFinding(t, "backlog", doctor.Warning, "1 kinds of events have no listener in any process that reports: Order/Lost")
		require.NotEmpty(t, f.WayOut)
	})
}

// No read of due events returns them, and they count as delayed.
func TestEventsThatAreNeverDueAreFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.insert(t, "soon", "", -24*time.Hour)
		for _, f := range of(w.examine(t), "backlog") {
			require.NotContains(t, f.Seen, "a hundred years")
		}
		far := map[testdb.Kind]string{testdb.Postgres: "'infinity'", testdb.MySQL: "'9999-01-01'", testdb.SQLite: "9000000000000000000"}[db.Kind]
		w.insert(t, "never", "", 0)
		w.run(t, "UPDATE outbox_event SET available_at = "+far+" WHERE event_id = 'never'")
		w.requireFinding(t, "backlog", doctor.Warning, "1 events wait, and are not due within a hundred years")
		null := map[testdb.Kind]string{
			testdb.Postgres: "ALTER TABLE outbox_event ALTER available_at DROP NOT NULL", testdb.MySQL: "ALTER TABLE outbox_event MODIFY available_at DATETIME(6) NULL",
		}[db.Kind]
		if null == "" {
			return // SQLite cannot drop a NOT NULL
		}
		w.insert(t, "null", "", 0)
		w.run(t, null, "UPDATE outbox_event SET available_at = NULL WHERE event_id = 'null'")
		w.requireFinding(t, "backlog", doctor.Warning, "2 events wait, and are not due within a hundred years")
	})
}

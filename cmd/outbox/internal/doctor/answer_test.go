package doctor_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// A table that another session has locked, such as with an ALTER TABLE that waits.
func TestALockedTableEndsTheExamination(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		for _, s := range map[testdb.Kind][]string{
			testdb.Postgres: {"BEGIN", "LOCK TABLE outbox_event IN ACCESS EXCLUSIVE MODE"}, testdb.MySQL: {"LOCK TABLES outbox_event WRITE"},
		}[db.Kind] {
			_, err := conn.ExecContext(t.Context(), s)
			require.NoError(t, err)
		}
		w.cfg.Limits.Check = 3 * time.Second
		findings, err := doctor.Examine(t.Context(), w.cfg)
		require.ErrorIs(t, err, doctor.ErrNoAnswer)
		last := findings[len(findings)-1]
		require.Equal(t, doctor.Failure, last.Level)
		require.Equal(t, "the database did not answer within 3s", last.Seen)
		require.Contains(t, last.WayOut, "locks on the table")
		unlock := map[testdb.Kind]string{testdb.Postgres: "ROLLBACK", testdb.MySQL: "UNLOCK TABLES"}[db.Kind]
		_, err = conn.ExecContext(t.Context(), unlock)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		w.cfg.Limits.Check = 0
		w.requireWell(t)
	})
}

func TestAProgramThatKeepsTheFileIsFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[2]))
	other, err := w.Reopen(t).BeginTx(t.Context(), nil) // BEGIN IMMEDIATE
	require.NoError(t, err)
	w.over(t, w.Reopen(t, testdb.Param("_pragma", "busy_timeout(1000)&_pragma=journal_mode(WAL)")).DB)
	found := w.requireFinding(t, "rehearsal", doctor.Failure, "cannot begin a transaction")
	require.Contains(t, found.WayOut, "end the transaction of the program")
	require.NoError(t, other.Rollback())
	w.requireWell(t)
}

func TestADatabaseThatGoesAwayEndsTheExamination(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		faulty, set := db.Faulty(t)
		w.over(t, faulty.DB)
		calls := 0
		w.cfg.Now = func() time.Time { // the first check that asks for the time is the rehearsal
			if calls++; calls == 1 {
				set(testdb.Away)
			}
			return time.Now()
		}
		findings, err := doctor.Examine(t.Context(), w.cfg)
		require.ErrorIs(t, err, doctor.ErrNoAnswer)
		last := findings[len(findings)-1]
		require.Equal(t, "rehearsal", last.Check)
		require.Equal(t, doctor.Failure, last.Level)
		require.Contains(t, last.Seen, "the database stopped answering")
		require.NotContains(t, last.Seen, "127.0.0.1")
		w.over(t, w.again(t))
		w.requireWell(t)
	})
}

// schema creates another schema, which is dropped with the test.
func (w *ward) schema(t *testing.T) (own, other string) {
	t.Helper()
	require.NoError(t, w.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&own))
	other = own + "_other"
	w.run(t, "CREATE SCHEMA "+other)
	t.Cleanup(func() {
		_, err := w.Exec("DROP SCHEMA " + other + " CASCADE") //nolint:noctx // the test's context has ended.
		require.NoError(t, err)
	})
	return own, other
}

func TestTablesInTwoSchemasAreFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	own, other := w.schema(t)
	w.over(t, w.Reopen(t, testdb.Param("search_path", own+"%2C"+other)).DB)
	w.run(t, "CREATE TABLE "+other+".outbox_event (LIKE outbox_event INCLUDING ALL)")
	found := w.requireFinding(t, "table", doctor.Warning, "the search_path has tables of the same names in "+other)
	require.Contains(t, found.WayOut, "drop or rename")
	w.run(t, "DROP TABLE "+other+".outbox_event")
	w.requireWell(t)

	w.run(t, "ALTER TABLE outbox_event_control SET SCHEMA "+other)
	found = w.requireFinding(t, "table", doctor.Warning, "in different schemas")
	require.Contains(t, found.WayOut, "SET SCHEMA")
	w.run(t, "ALTER TABLE "+other+".outbox_event_control SET SCHEMA "+own)
	w.requireWell(t)
}

func TestPartitionsThatEndAreFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.partition(t)
	w.run(t, "DROP TABLE others")
	w.requireFinding(t, "rehearsal", doctor.Failure, "cannot write an event")
	today := time.Now().UTC()
	w.run(t, fmt.Sprintf("CREATE TABLE today PARTITION OF outbox_event FOR VALUES FROM ('%s') TO ('%s')",
		today.Add(-24*time.Hour).Format(time.RFC3339), today.Add(12*time.Hour).Format(time.RFC3339)))
	found := w.requireFinding(t, "rehearsal", doctor.Warning, "will not be able to write an event in 24 hours")
	require.Contains(t, found.WayOut, "create the partitions of the next days")
	w.run(t, "CREATE TABLE others PARTITION OF outbox_event DEFAULT")
	w.over(t, w.again(t))
	w.requireWell(t)
}

// https://github.com/timgit/pg-boss/issues/387 is a queue whose deletes failed like this.
func TestAPublicationWithoutReplicaIdentityIsFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	name := fmt.Sprintf("doctor_%d", time.Now().UnixNano())
	w.run(t, "ALTER TABLE outbox_event REPLICA IDENTITY NOTHING", "CREATE PUBLICATION "+name+" FOR TABLE outbox_event")
	t.Cleanup(func() {
		_, err := w.Exec("DROP PUBLICATION " + name) //nolint:noctx // the test's context has ended.
		require.NoError(t, err)
	})
	found := w.requireFinding(t, "rehearsal", doctor.Failure, "does not have a replica identity")
	require.Contains(t, found.WayOut, "REPLICA IDENTITY DEFAULT")
	w.run(t, "ALTER TABLE outbox_event REPLICA IDENTITY DEFAULT")
	w.over(t, w.again(t))
	w.requireWell(t)
}

// PgBouncer in the mode statement takes no transactions.
func TestAPoolerWithoutTransactionsIsFound(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	w := admit(t, db)
	for mode, broken := range map[string]bool{"statement": true, "transaction": false} {
		pool, err := sql.Open("pgx", db.PgBouncerIn(t, mode)+"&default_query_exec_mode=exec")
		require.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close() })
		w.over(t, pool)
		if broken {
			found := w.requireFinding(t, "rehearsal", doctor.Failure, "statement pooling mode")
			require.Contains(t, found.WayOut, "pool_mode = transaction")
		} else {
			w.requireWell(t)
		}
	}
}

func TestNodesWithoutTheIndexOfTheirModeAreFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.announce(t, "node", "ordered-by-key", time.Minute)
		found := w.requireFinding(t, "nodes", doctor.Failure, "idx_outbox_event_key is missing")
		w.run(t, statementsOf(found.WayOut)...)
		w.over(t, w.again(t))
		w.requireWell(t)
	})
}

// A tool may print a finding without its report, so each has the section that explains its check.
func TestEachFindingHasItsSection(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[2]))
	for _, f := range w.examine(t) {
		require.Contains(t, doctor.Checks(), f.Check)
		require.Regexp(t, `^docs/reference/doctor\.md#[a-z_-]+$`, f.Page)
	}
}

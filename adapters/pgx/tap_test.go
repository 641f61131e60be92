package outboxpgx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// begin begins a transaction with one event.
func (f fixture) begin(t testing.TB, options ...pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := f.pool.BeginTx(t.Context(), append(options, pgx.TxOptions{})[0])
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	f.write(t, tx)
	return tx
}

func (f fixture) write(t testing.TB, tx pgx.Tx) {
	t.Helper()
	id, err := f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	require.NotEmpty(t, id)
}

func run(t testing.TB, tx pgx.Tx, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := tx.Exec(t.Context(), s)
		require.NoError(t, err)
	}
}

func TestStatementsThatEndATransaction(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		statements []string
		ends       []string
		written    int
	}{
		"commit":                        {[]string{"COMMIT"}, []string{"commit"}, 1},
		"end":                           {[]string{"end -- of it"}, []string{"commit"}, 1},
		"rollback":                      {[]string{"ROLLBACK"}, []string{"rollback"}, 0},
		"commit and chain":              {[]string{"COMMIT AND CHAIN", "ROLLBACK"}, []string{"commit"}, 1},
		"rollback and chain":            {[]string{"ROLLBACK AND CHAIN", "COMMIT"}, []string{"rollback"}, 0},
		"several, commit first":         {[]string{"COMMIT; BEGIN", "ROLLBACK"}, []string{"unknown"}, 1},
		"several, rollback, then begin": {[]string{"SELECT 1; ROLLBACK; BEGIN", "COMMIT"}, []string{"unknown"}, 0},
		"several, rollback and commit":  {[]string{"ROLLBACK; COMMIT"}, []string{"unknown"}, 0},
		"several, commit and rollback":  {[]string{"COMMIT; ROLLBACK"}, []string{"unknown"}, 1},
		"several, to a savepoint":       {[]string{"SELECT 1; ROLLBACK TO early", "COMMIT"}, []string{"unknown"}, 0},
		"several without an end":        {[]string{"SELECT 1; SELECT 2;", "COMMIT"}, []string{"commit"}, 1},
		"several with the word end":     {[]string{"SELECT 1; SELECT CASE WHEN true THEN 1\nEND", "COMMIT"}, []string{"commit"}, 1},
		"several after a literal":       {[]string{"SELECT '/*'; ROLLBACK TO early; SELECT '*/'", "COMMIT"}, []string{"unknown"}, 0},
		"several, rolled back":          {[]string{"SELECT 1; COMMIT; BEGIN", "ROLLBACK"}, []string{"unknown"}, 1},
		"a comment behind a semicolon":  {[]string{"COMMIT; -- done"}, []string{"commit"}, 1},
		"a comment behind, rollback":    {[]string{"ROLLBACK; /* done */"}, []string{"rollback"}, 0},
		"a comment behind, savepoint":   {[]string{"ROLLBACK TO early; -- done", "COMMIT"}, []string{"rollback"}, 0},
		"a semicolon in a literal":      {[]string{"SELECT '; ROLLBACK TO early'", "COMMIT"}, []string{"commit"}, 1},
		"a block":                       {[]string{"DO $$ BEGIN PERFORM 1; END $$", "COMMIT"}, []string{"commit"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tx, err := f.pool.Begin(t.Context())
			require.NoError(t, err)
			run(t, tx, "SAVEPOINT early")
			f.write(t, tx)
			run(t, tx, tc.statements...)
			f.rec.EventuallyInAnyOrder(t, tc.ends...)
			f.written(t, tc.written)
			_ = tx.Rollback(t.Context())
		})
	}
}

// The new transaction of COMMIT AND CHAIN has events of its own.
func TestWriteInAChainedTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin(t)
	run(t, tx, "COMMIT AND CHAIN")
	f.write(t, tx)
	require.NoError(t, tx.Rollback(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit", "rollback")
	f.written(t, 1)
}

func TestCommitQuery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin(t, pgx.TxOptions{BeginQuery: "/* app */ BEGIN", CommitQuery: "/* app */ COMMIT AND NO CHAIN"})
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit")
}

func TestPreparedStatementsThatControl(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for name, sql := range map[string]string{"mark": "SAVEPOINT mark", "back": "ROLLBACK TO mark", "finish": "COMMIT"} {
		_, err = conn.Conn().Prepare(t.Context(), name, sql)
		require.NoError(t, err)
	}
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, tx)
	run(t, tx, "mark")
	f.write(t, tx)
	run(t, tx, "back")
	f.rec.EventuallyInAnyOrder(t, "rollback")
	run(t, tx, "finish")
	f.rec.EventuallyInAnyOrder(t, "rollback", "commit")
	f.written(t, 1)
}

// SQL's EXECUTE runs what the driver has prepared, by a name that may be quoted.
func TestExecuteOfAPreparedStatementThatControls(t *testing.T) {
	t.Parallel()
	for _, execute := range []string{"EXECUTE back", `EXECUTE "back"`} {
		f := newFixture(t)
		conn, err := f.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		_, err = conn.Conn().Prepare(t.Context(), "back", "ROLLBACK TO mark")
		require.NoError(t, err)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		run(t, tx, "SAVEPOINT mark")
		f.write(t, tx)
		run(t, tx, execute)
		require.NoError(t, tx.Commit(t.Context()))
		f.rec.EventuallyInAnyOrder(t, "unknown")
		f.written(t, 0)
	}
}

func TestReleaseWithAnOpenTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, tx)
	conn.Release()
	f.rec.EventuallyInAnyOrder(t, "rollback")
	f.written(t, 0)
}

func TestEndOnThePgConnIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, tx)
	_, err = conn.Conn().PgConn().Exec(t.Context(), "COMMIT; BEGIN; COMMIT").ReadAll()
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	f.rec.EventuallyInAnyOrder(t, "unknown")

	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, tx)
	_, err = conn.Conn().PgConn().Exec(t.Context(), "COMMIT").ReadAll()
	require.NoError(t, err)
	conn.Release()
	f.rec.EventuallyInAnyOrder(t, "unknown", "unknown")
	f.written(t, 2)
}

// The connection of a transaction that is over may be another caller's.
func TestWriteInATransactionThatIsOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	over, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	nested, err := over.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, over.Rollback(t.Context()))
	tx := f.begin(t)
	require.Same(t, over.Conn(), tx.Conn())
	for _, tx := range []pgx.Tx{over, nested} {
		_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = f.a.WithTx(t.Context(), tx)
		require.ErrorIs(t, err, outbox.ErrNoTransaction, "not the other caller's")
	}
	require.NoError(t, tx.Rollback(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "rollback")
}

// A statement that pgx refuses, because the rows of another one are unread, did not
// happen.
func TestStatementWhileRowsAreUnread(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin(t)
	rows, err := tx.Query(t.Context(), "SELECT generate_series(1, 10)")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "ROLLBACK")
	require.ErrorContains(t, err, "conn busy")
	rows.Close()
	require.NoError(t, rows.Err())
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit")
	f.written(t, 1)
}

func TestCopyFrom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, "CREATE TABLE copied (id INTEGER PRIMARY KEY)")
	copyTwice := func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"copied"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}, {2}}))
		return err
	}
	tx := f.begin(t)
	require.NoError(t, copyTwice(tx))
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit")

	tx = f.begin(t)
	require.Error(t, copyTwice(tx), "duplicates")
	require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
	f.rec.EventuallyInAnyOrder(t, "commit", "rollback")
	require.ErrorIs(t, f.rec.LastCause(), pgx.ErrTxCommitRollback)
}

func TestContextsOfStatements(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// pgx sends nothing, and closes the connection.
	tx := f.begin(t)
	require.ErrorIs(t, tx.Commit(ended), context.Canceled)
	f.rec.EventuallyInAnyOrder(t, "rollback")
	// A statement that was interrupted.
	tx = f.begin(t)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := tx.Exec(short, "SELECT pg_sleep(10)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	f.rec.EventuallyInAnyOrder(t, "rollback", "rollback")
	_ = tx.Rollback(t.Context())
	// A savepoint that pgx did not roll back, because its context had ended.
	tx = f.begin(t)
	nested, err := tx.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, nested)
	require.ErrorIs(t, nested.Rollback(ended), context.Canceled)
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "rollback", "rollback", "commit", "commit")
	f.written(t, 2)
}

func TestCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	plain := testdb.Open(t, testdb.Main()[0])
	cut, cuts := plain.CutCommits(t)
	direct := *plain
	direct.DSN = cut.DSN
	f := newFixtureOn(t, &direct, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // sends a batch at once
	})
	tx := f.begin(t)
	err := tx.Commit(t.Context())
	require.Error(t, err)
	t.Logf("pgx says that a retry is safe, of a COMMIT that the server has executed: %t", pgconn.SafeToRetry(err))
	f.rec.EventuallyInAnyOrder(t, "unknown")
	f.written(t, 1)

	// In one that the adapter ends, the error says so.
	err = outbox.InTx(t.Context(), f.a, func(ctx context.Context) error {
		_, err := f.writer.Write(ctx, adaptertest.Event())
		return err
	})
	require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
	require.Equal(t, []string{"unknown", "unknown"}, f.rec.Outcomes())

	// A batch that commits.
	tx = f.begin(t)
	batch := queue(t, f)
	batch.Queue("COMMIT")
	require.Error(t, tx.SendBatch(t.Context(), batch).Close())
	f.rec.EventuallyInAnyOrder(t, "unknown", "unknown", "unknown", "unknown")
	f.written(t, 4)
	require.EqualValues(t, 3, cuts.Load())
}

func TestTransactorsRollbackOfALostConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	failure := errors.New("given up")
	err := outbox.InTx(t.Context(), f.a, func(ctx context.Context) error {
		_, err := f.writer.Write(ctx, adaptertest.Event())
		require.NoError(t, err)
		tx, ok := f.a.TxFrom(ctx)
		require.True(t, ok)
		require.NoError(t, tx.Conn().Close(ctx))
		return failure
	})
	require.Equal(t, failure, err, "nothing is wrong with the rollback")
	require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
}

func TestRollbackStatementThenCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin(t)
	run(t, tx, "ROLLBACK")
	require.ErrorContains(t, tx.Commit(t.Context()), "has undone the transaction's events")
	// The connection is free for others.
	require.NoError(t, f.begin(t).Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "rollback", "commit")
}

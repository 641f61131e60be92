package outboxbun_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// Transactions that are begun with the context of another one, and whose
// statements have that context too: whose statement it is cannot be told.

// within runs fn with a transaction and a second one that was begun with its
// context; the first one commits.
func within(t *testing.T, f *fixture, fn func(ctx context.Context, first, second bun.Tx)) {
	t.Helper()
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, first bun.Tx) error {
		second, err := f.db.BeginTx(ctx, nil)
		require.NoError(t, err)
		fn(ctx, first, second)
		return nil
	}))
}

func TestRollbackInAnotherTransactionsContext(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		f := newFixture(t, db.DB, db.Kind)
		within(t, f, func(ctx context.Context, first, second bun.Tx) {
			_, err := second.ExecContext(ctx, "SAVEPOINT a")
			require.NoError(t, err)
			_, err = f.a.Write(ctx, first, adaptertest.Event())
			require.NoError(t, err)
			_, err = f.a.Write(ctx, second, adaptertest.Event())
			require.NoError(t, err)
			_, err = second.ExecContext(ctx, "ROLLBACK TO SAVEPOINT a")
			require.NoError(t, err)
			require.NoError(t, second.Commit())
		})
		require.Equal(t, []string{"unknown", "unknown"}, f.rec.Outcomes(), "neither is said to have committed")
		require.Equal(t, 1, adaptertest.Written(t, f.pool))
	})
}

func TestNestedInAnotherTransactionsContext(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		f := newFixture(t, db.DB, db.Kind)
		within(t, f, func(ctx context.Context, _, second bun.Tx) {
			nested, err := second.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = f.a.Write(ctx, nested, adaptertest.Event())
			require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction, "it may be the first one's")
			require.NoError(t, second.Rollback())
		})
		require.Empty(t, f.rec.Outcomes())
		require.Zero(t, adaptertest.Written(t, f.pool))
	})
}

func TestDeadlockInAnotherTransactionsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[1]).DB, testdb.MySQL)
	within(t, f, func(ctx context.Context, first, second bun.Tx) {
		_, err := f.a.Write(ctx, second, adaptertest.Event())
		require.NoError(t, err)
		_ = adaptertest.Deadlock(t, f.pool, func(query string) error { _, err := second.ExecContext(ctx, query); return err })
		_, err = f.a.Write(ctx, second, adaptertest.Event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.Error(t, second.Commit())
		_, err = f.a.Write(ctx, first, adaptertest.Event())
		require.NoError(t, err, "the first one is none the worse")
	})
	require.Equal(t, []string{"rollback", "commit"}, f.rec.Outcomes())
	require.Equal(t, 1, adaptertest.Written(t, f.pool))
}

func TestDDLInAnotherTransactionsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[1]).DB, testdb.MySQL)
	within(t, f, func(ctx context.Context, first, second bun.Tx) {
		_, err := f.a.Write(ctx, second, adaptertest.Event())
		require.NoError(t, err)
		_, err = second.ExecContext(ctx, "CREATE TABLE ddl (id INTEGER)")
		require.NoError(t, err)
		require.NoError(t, second.Rollback())
		require.Equal(t, []string{"unknown"}, f.rec.Outcomes(), "it has committed before")
		_, err = f.a.Write(ctx, first, adaptertest.Event())
		require.NoError(t, err)
	})
	require.Equal(t, 2, adaptertest.Written(t, f.pool))
}

// A context that outlived its transaction says nothing of the one that it is
// used in.
func TestContextOfATransactionThatHasEnded(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	var old context.Context
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, _ bun.Tx) error {
		old = ctx //nolint:fatcontext // what the test is about.
		return nil
	}))
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(old, "SAVEPOINT a")
	require.NoError(t, err)
	_, err = f.a.Write(old, tx, adaptertest.Event())
	require.NoError(t, err)
	_, err = tx.ExecContext(old, "ROLLBACK TO SAVEPOINT a")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"unknown"}, f.rec.Outcomes())
}

// COMMIT as a statement, with a foreign context, of a transaction that has
// failed: PostgreSQL rolls back and says nothing.
func TestCommitStatementWithForeignContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[0]).DB, testdb.Postgres)
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	_, err = tx.ExecContext(context.Background(), "INSERT INTO written (id) SELECT id FROM written")
	require.Error(t, err)
	_, err = tx.ExecContext(context.Background(), "COMMIT")
	require.NoError(t, err)
	_ = tx.Commit()
	require.Equal(t, []string{"unknown"}, f.rec.Outcomes())
	require.Zero(t, adaptertest.Written(t, f.pool))

	tx, err = f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	_, err = tx.ExecContext(context.Background(), "COMMIT")
	require.NoError(t, err)
	_ = tx.Commit()
	require.Equal(t, []string{"unknown", "unknown"}, f.rec.Outcomes())
	require.Equal(t, 1, adaptertest.Written(t, f.pool))
}

// What runs on another connection with the transaction's context is none of its
// statements.
func TestDDLElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[1]).DB, testdb.MySQL)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := f.db.ExecContext(ctx, "CREATE TABLE ddl (id INTEGER)")
		require.NoError(t, err)
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

// database/sql allows Rollback while Commit is under way, as of a watchdog.
func TestRollbackDuringCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[0]).DB, testdb.Postgres)
	adaptertest.Exec(t, f.pool, "CREATE TABLE slow (id INTEGER)",
		`CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END'`,
		`CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap()`)
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO slow VALUES (1)")
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	committed := make(chan error, 1)
	go func() { committed <- tx.Commit() }()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, f.pool.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query = 'commit' AND state = 'active'").Scan(&n))
		return n > 0
	}, 20*time.Second, time.Millisecond)
	require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
	require.NoError(t, <-committed)
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

func openSQLite(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	createTable(t, db)
	return db
}

func createTable(t testing.TB, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
	require.NoError(t, err)
}

// record notes the outcomes that the writer's hooks are told.
type record struct {
	mu       sync.Mutex
	outcomes []string
}

func (r *record) add(outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, outcome)
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.outcomes)
}

func (r *record) hook() outbox.WriterHook {
	return outbox.WriterHook{
		AfterCommit: func(context.Context, []outbox.Envelope) { r.add("commit") },
		AfterRollback: func(_ context.Context, _ []outbox.Envelope, cause error) {
			if errors.Is(cause, outbox.ErrOutcomeUnknown) {
				r.add("unknown")
			} else {
				r.add("rollback")
			}
		},
	}
}

func newWriter(t testing.TB, db *sql.DB, dialect string, hooks ...outbox.WriterHook) *outbox.Writer {
	t.Helper()
	writer, err := outbox.NewWriter(outbox.WriterConfig{Store: adaptertest.Store(dialect), Source: db, Hooks: hooks})
	require.NoError(t, err)
	return writer
}

func written(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM written").Scan(&n))
	return n
}

func event() outbox.Envelope { return adaptertest.Event() }

func TestRunInTxCommitsAndRollsBack(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	committed := 0
	a := sqltx.New(db, newWriter(t, db, "sqlite", outbox.WriterHook{
		AfterCommit: func(context.Context, []outbox.Envelope) { committed++ },
	}))
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
		id, err := a.Write(ctx, tx, event())
		require.NotEmpty(t, id)
		return err
	}))
	require.Equal(t, 1, written(t, db))
	require.Equal(t, 1, committed)

	failure := errors.New("no")
	require.ErrorIs(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
		_, err := a.Write(ctx, tx.Tx, event())
		require.NoError(t, err)
		return failure
	}), failure)
	require.Equal(t, 1, written(t, db))
	require.Equal(t, 1, committed)
}

func TestMisconfigurationIsReportedByEachCall(t *testing.T) {
	t.Parallel()
	db, other := openSQLite(t), openSQLite(t)
	a := sqltx.New(db, newWriter(t, other, "sqlite"))
	_, err := a.BeginTx(t.Context(), nil)
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	_, _, err = a.Begin(t.Context(), nil)
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	err = sqltx.New(nil, nil).RunInTx(t.Context(), nil, nil)
	require.ErrorContains(t, err, "sqltx.New db is nil")
	require.ErrorContains(t, err, "sqltx.New writer is nil")
	_, err = sqltx.New((*sql.DB)(nil), nil).Write(t.Context(), nil, event())
	require.ErrorContains(t, err, "sqltx.New db is nil")
}

func TestPlainTransactionAfterItsEnd(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	for _, a := range []*sqltx.Adapter{
		sqltx.New(db, newWriter(t, db, "sqlite")),
		sqltx.New(db, newWriter(t, db, "sqlite"), sqltx.AllowUnmanaged()),
	} {
		tx, err := a.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		_, err = a.Write(t.Context(), tx.Tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
	}
}

// foreignTx has the methods, as *sqlx.Tx does.
type foreignTx struct{ *sql.Tx }

func TestOtherTypesOfTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	a := sqltx.New(db, newWriter(t, db, "sqlite"))
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
		_, err := a.Write(ctx, foreignTx{tx.Tx}, event())
		require.ErrorContains(t, err, "hand over the *sql.Tx inside")
		return nil
	}))
	for _, tx := range []sqltx.AnyTx{nil, (*sql.Tx)(nil), (*sqltx.Tx)(nil), &sqltx.Tx{}} {
		_, err := a.Write(t.Context(), tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction, "%T", tx)
	}
}

func TestTxFrom(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	a := sqltx.New(db, newWriter(t, db, "sqlite"))
	_, ok := sqltx.TxFrom(t.Context())
	require.False(t, ok)
	var kept context.Context
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, outer *sqltx.Tx) error {
		kept = ctx //nolint:fatcontext // what the test is about.
		found, ok := sqltx.TxFrom(ctx)
		require.True(t, ok)
		require.Same(t, outer, found)
		return a.RunInTx(ctx, nil, func(ctx context.Context, inner *sqltx.Tx) error {
			found, ok := sqltx.TxFrom(ctx)
			require.True(t, ok)
			require.Same(t, inner, found)
			require.Same(t, outer.Tx, inner.Tx)
			return nil
		})
	}))
	_, ok = sqltx.TxFrom(kept)
	require.False(t, ok, "the transaction is over")
}

func TestStatementsOfEveryForm(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
	tx, err := a.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("SAVEPOINT a")
	require.NoError(t, err)
	_, err = a.Write(t.Context(), tx, event())
	require.NoError(t, err)
	rows, err := tx.Query("ROLLBACK TO a") // not how one should, but it works
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"rollback"}, rec.all())

	_, err = tx.Prepare("/* c */ ROLLBACK TO a")
	require.ErrorContains(t, err, "cannot be prepared")
	stmt, err := tx.Prepare("INSERT INTO written (id) VALUES (?)")
	require.NoError(t, err)
	_, err = stmt.ExecContext(t.Context(), "prepared")
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	var n int
	require.NoError(t, tx.QueryRow("SELECT count(*) FROM written").Scan(&n))
	require.Equal(t, 1, n)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
}

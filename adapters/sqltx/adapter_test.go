package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

func openSQLite(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sqltx.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	createTable(t, db)
	return db
}

func TestOpenReportsWhatSQLOpenDoes(t *testing.T) {
	t.Parallel()
	_, err := sqltx.Open("nosuch", "")
	require.ErrorContains(t, err, `unknown driver "nosuch"`)
	_, err = sqltx.Open("mysql", "no DSN")
	require.Error(t, err)
}

func newWriter(t testing.TB, db *sql.DB) *outbox.Writer {
	t.Helper()
	writer, _ := adaptertest.WriterWithoutTable(t, db, "sqlite")
	return writer
}

// embedding is a handle such as *sqlx.DB.
type embedding struct{ *sql.DB }

func TestNewTakesAFollowedPool(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	for _, pool := range []sqltx.Beginner{db, &embedding{db}} {
		_, err := sqltx.New(pool, newWriter(t, db))
		require.NoError(t, err)
	}
	plain := sql.OpenDB(nothing{})
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	hidden := sql.OpenDB(hiding{sqltx.WrapConnector(nothing{})}) // ours is not the outermost
	t.Cleanup(func() { require.NoError(t, hidden.Close()) })
	_, err := sqltx.New(hidden, newWriter(t, hidden))
	require.NoError(t, err)
	_, err = sqltx.New(plain, newWriter(t, plain))
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.ErrorContains(t, err, "sqltx.Open")
	require.ErrorContains(t, err, "sqltx.Watch(pool)")
	require.NotContains(t, err.Error(), "AllowUnmanaged")
	_, err = sqltx.New(plain, newWriter(t, plain), sqltx.AllowUnmanaged())
	require.ErrorContains(t, err, "AllowUnmanaged is for transactions of other pools")
	_, err = sqltx.New(nil, nil)
	require.ErrorContains(t, err, "sqltx.New db is nil")
	require.ErrorContains(t, err, "sqltx.New writer is nil")
	_, err = sqltx.New((*sql.DB)(nil), newWriter(t, db))
	require.ErrorContains(t, err, "sqltx.New db is nil")
	_, err = sqltx.New(notAPool{}, newWriter(t, db))
	require.ErrorContains(t, err, "embeds no *sql.DB")
	_, err = sqltx.New(db, newWriter(t, openSQLite(t)))
	require.ErrorContains(t, err, "writes through another pool")
}

type notAPool struct{}

func (notAPool) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) { return nil, nil }

func TestRunInTxTellsTheCause(t *testing.T) {
	t.Parallel()
	f := newFixture(t, openSQLite(t), "sqlite")
	failure := errors.New("no")
	require.ErrorIs(t, f.a.RunInTx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
		write(t, f.a, tx)
		return failure
	}), failure)
	require.Equal(t, failure, f.rec.LastCause(), "known when RunInTx returns")
	require.Zero(t, written(t, f.db))
}

func TestRunInTxOfACancelledContextReturnsItsError(t *testing.T) {
	t.Parallel()
	for range 50 {
		f := newFixture(t, open(t, newRecording()), "sqlite")
		ctx, cancel := context.WithCancel(t.Context())
		err := f.a.RunInTx(ctx, nil, func(_ context.Context, tx *sql.Tx) error {
			write(t, f.a, tx)
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"rollback"}, f.rec.Outcomes(), "before RunInTx returns")
		require.Eventually(t, func() bool { return f.db.Stats().InUse == 0 }, 20*time.Second, time.Millisecond)
	}
}

func TestEndingTheTransactionWithinRunInTx(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	f := newFixture(t, db, "sqlite")
	for want, end := range map[string]func(tx *sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		f.rec.Reset()
		require.ErrorIs(t, f.a.RunInTx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
			write(t, f.a, tx)
			return end(tx)
		}), sql.ErrTxDone)
		require.Equal(t, []string{want}, f.rec.Outcomes(), "before RunInTx returns")
	}
	require.Equal(t, 1, written(t, db))
}

func TestTxFrom(t *testing.T) {
	t.Parallel()
	db, other := openSQLite(t), openSQLite(t)
	f, g := newFixture(t, db, "sqlite"), newFixture(t, other, "sqlite")
	_, ok := f.a.TxFrom(t.Context())
	require.False(t, ok)
	var kept context.Context
	require.NoError(t, f.a.RunInTx(t.Context(), nil, func(ctx context.Context, outer *sql.Tx) error {
		kept = ctx //nolint:fatcontext // what the test is about.
		_, ok := g.a.TxFrom(ctx)
		require.False(t, ok, "of another pool")
		return g.a.RunInTx(ctx, nil, func(ctx context.Context, _ *sql.Tx) error {
			return f.a.RunInTx(ctx, nil, func(ctx context.Context, inner *sql.Tx) error {
				require.Same(t, outer, inner)
				found, ok := f.a.TxFrom(ctx)
				require.True(t, ok)
				require.Same(t, outer, found)
				return nil
			})
		})
	}))
	_, ok = f.a.TxFrom(kept)
	require.False(t, ok, "the transaction is over")
}

// generatedTx is a transaction as ent generates it with the feature
// sql/execquery: its *sql.Tx is out of reach.
type generatedTx struct{ inner *sql.Tx }

func (tx *generatedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return tx.inner.ExecContext(ctx, query, args...)
}
func (tx *generatedTx) Commit() error   { return tx.inner.Commit() }
func (tx *generatedTx) Rollback() error { return tx.inner.Rollback() }

// rewritingTx embeds the *sql.Tx and rewrites statements, as bun's does.
type rewritingTx struct{ *sql.Tx }

func (tx rewritingTx) ExecContext(ctx context.Context, query string, _ ...any) (sql.Result, error) {
	return tx.Tx.ExecContext(ctx, "/* rewritten */ "+query)
}

func TestTransactionsOfOtherTypes(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	f := newFixture(t, db, "sqlite")
	for _, wrap := range []func(tx *sql.Tx) sqltx.AnyTx{
		func(tx *sql.Tx) sqltx.AnyTx { return &generatedTx{tx} },
		func(tx *sql.Tx) sqltx.AnyTx { return rewritingTx{tx} },
		func(tx *sql.Tx) sqltx.AnyTx { return &rewritingTx{tx} },
	} {
		tx := wrap(begin(t, db))
		write(t, f.a, tx)
		ctx, err := f.a.WithTx(t.Context(), tx)
		require.NoError(t, err)
		require.NoError(t, outbox.InTx(ctx, f.a, func(ctx context.Context) error {
			_, err := f.writer.Write(ctx, event())
			return err
		}), "a savepoint of it")
		require.NoError(t, tx.Commit())
		_, err = f.a.Write(t.Context(), tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
	}
	require.Equal(t, 6, written(t, db))
	for _, tx := range []sqltx.AnyTx{nil, (*sql.Tx)(nil), (*generatedTx)(nil)} {
		_, err := f.a.Write(t.Context(), tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction, "%T", tx)
	}
}

// RunInTx has no *sql.Tx to give to its function.
func TestRunInTxWithinATransactionThatHidesItsSQLTx(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	f := newFixture(t, db, "sqlite")
	ctx, err := f.a.WithTx(t.Context(), &generatedTx{begin(t, db)})
	require.NoError(t, err)
	err = f.a.RunInTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil })
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.ErrorContains(t, err, "use Begin")
}

// The compiler refuses what has no end to wait for.
func TestPoolsAndConnectionsAreNoTransactions(t *testing.T) {
	t.Parallel()
	anyTx := reflect.TypeFor[sqltx.AnyTx]()
	require.True(t, reflect.TypeFor[*sql.Tx]().Implements(anyTx))
	require.False(t, reflect.TypeFor[*sql.DB]().Implements(anyTx))
	require.False(t, reflect.TypeFor[*sql.Conn]().Implements(anyTx))
}

func TestEndedContextDoesNotHideThatTheTransactionIsOver(t *testing.T) {
	t.Parallel()
	db := open(t, newRecording())
	f := newFixture(t, db, "sqlite")
	ctx, cancel := context.WithCancel(t.Context())
	still, over := begin(t, db), begin(t, db)
	require.NoError(t, over.Commit())
	cancel()
	_, err := f.a.Write(ctx, over, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = f.a.Write(ctx, still, event())
	require.ErrorIs(t, err, context.Canceled)
}

func TestWithTxCarriesTheCallersTransaction(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	f := newFixture(t, db, "sqlite")
	tx := begin(t, db)
	ctx, err := f.a.WithTx(t.Context(), tx)
	require.NoError(t, err)
	again, err := f.a.WithTx(ctx, tx)
	require.NoError(t, err)
	require.Equal(t, ctx, again)
	_, err = f.writer.Write(ctx, event())
	require.NoError(t, err)
	require.NoError(t, f.a.RunInTx(ctx, nil, func(_ context.Context, inner *sql.Tx) error {
		require.Same(t, tx, inner)
		return nil
	}))
	require.NoError(t, tx.Commit())
	f.rec.Eventually(t, "commit")
	_, err = f.writer.Write(ctx, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
}

func TestWithTxFailsAsWriteDoes(t *testing.T) {
	t.Parallel()
	db, other := openSQLite(t), openSQLite(t)
	plain := sql.OpenDB(nothing{})
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	f := newFixture(t, db, "sqlite", sqltx.AllowUnmanaged())
	_, err := f.a.WithTx(t.Context(), nil)
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = f.a.WithTx(t.Context(), begin(t, plain))
	require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
	_, err = f.a.WithTx(t.Context(), begin(t, other))
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
}

package sqltx_test

import (
	"context"
	"database/sql"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// generatedTx is a transaction as ent generates it with the feature
// sql/execquery: there is no *sql.Tx to be had.
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
	testdb.Each(t, testdb.Main(), func(t *testing.T, bare *testdb.DB) {
		f := newWrappedFixture(t, bare)
		for _, wrap := range []func(tx *sql.Tx) sqltx.AnyTx{
			func(tx *sql.Tx) sqltx.AnyTx { return &generatedTx{tx} },
			func(tx *sql.Tx) sqltx.AnyTx { return rewritingTx{tx} },
			func(tx *sql.Tx) sqltx.AnyTx { return &rewritingTx{tx} },
		} {
			tx := wrap(begin(t, f.db))
			write(t, f.a, tx)
			require.NoError(t, tx.Commit())
			_, err := f.a.Write(t.Context(), tx, event())
			require.ErrorIs(t, err, outbox.ErrNoTransaction)
		}
		f.rec.eventually(t, "commit", "commit", "commit")
		require.Equal(t, 3, written(t, f.db))

		// Of a pool that is not wrapped they stay strangers, whatever is allowed.
		stranger := sqltx.New(bare.DB, newWriter(t, bare.DB, string(bare.Kind)), sqltx.AllowUnmanaged())
		plain := begin(t, bare.DB)
		for _, tx := range []sqltx.AnyTx{&generatedTx{plain}, rewritingTx{plain}} {
			_, err := stranger.Write(t.Context(), tx, event())
			require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
			require.ErrorContains(t, err, "hand over the *sql.Tx inside it, or open the pool with sqltx.WrapConnector")
		}
		_, err := f.a.Write(t.Context(), (*generatedTx)(nil), event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
	})
}

// The compiler keeps out what has no end to wait for.
func TestPoolsAndConnectionsAreNoTransactions(t *testing.T) {
	t.Parallel()
	anyTx := reflect.TypeFor[sqltx.AnyTx]()
	require.True(t, reflect.TypeFor[*sql.Tx]().Implements(anyTx))
	require.True(t, reflect.TypeFor[*sqltx.Tx]().Implements(anyTx))
	require.False(t, reflect.TypeFor[*sql.DB]().Implements(anyTx))
	require.False(t, reflect.TypeFor[*sql.Conn]().Implements(anyTx))
}

func TestEndedContextDoesNotHideThatTheTransactionIsOver(t *testing.T) {
	t.Parallel()
	db := openWrapped(t, newRecording())
	a := sqltx.New(db, newWriter(t, db, "sqlite"))
	ctx, cancel := context.WithCancel(t.Context())
	open, over := begin(t, db), begin(t, db)
	require.NoError(t, over.Commit())
	cancel()
	_, err := a.Write(ctx, over, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = a.Write(ctx, open, event())
	require.ErrorIs(t, err, context.Canceled)
}

func TestWithTxCarriesTheCallersTransaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, bare *testdb.DB) {
		f := newWrappedFixture(t, bare)
		writer := newWriter(t, f.db, string(bare.Kind), f.rec.hook())
		a := sqltx.New(f.db, writer)
		tx := begin(t, f.db)
		ctx, err := a.WithTx(t.Context(), tx)
		require.NoError(t, err)
		_, err = writer.Write(ctx, event())
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		f.rec.eventually(t, "commit")
		_, err = writer.Write(ctx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
	})
}

func TestWithTxOfTheAdaptersOwnTransactionNests(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	a := sqltx.New(db, newWriter(t, db, "sqlite"))
	tx, err := a.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	ctx, err := a.WithTx(t.Context(), tx)
	require.NoError(t, err)
	require.NoError(t, a.RunInTx(ctx, nil, func(_ context.Context, inner *sqltx.Tx) error {
		require.Same(t, tx.Tx, inner.Tx)
		return nil
	}))
	require.NoError(t, tx.Rollback())
}

func TestWithTxFailsAsWriteDoes(t *testing.T) {
	t.Parallel()
	db, other := openSQLite(t), openSQLite(t)
	a, foreign := sqltx.New(db, newWriter(t, db, "sqlite"), sqltx.AllowUnmanaged()), sqltx.New(other, newWriter(t, other, "sqlite"))
	_, err := a.WithTx(t.Context(), nil)
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = a.WithTx(t.Context(), begin(t, db))
	require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
	tx, err := foreign.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = a.WithTx(t.Context(), tx)
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	require.NoError(t, tx.Rollback())
	_, err = sqltx.New(nil, nil).WithTx(t.Context(), tx)
	require.ErrorContains(t, err, "db is nil")
}

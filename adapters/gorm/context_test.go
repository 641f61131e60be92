package outboxgorm_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTxFrom(t *testing.T) {
	t.Parallel()
	f, other := onSQLite(t, &gorm.Config{}), onSQLite(t, &gorm.Config{})
	_, ok := f.a.TxFrom(t.Context())
	require.False(t, ok)

	var kept context.Context
	require.NoError(t, outbox.InTx(t.Context(), f.a, func(ctx context.Context) error {
		kept = ctx //nolint:fatcontext // what the test is about.
		found, ok := f.a.TxFrom(ctx)
		require.True(t, ok)
		require.Equal(t, ctx, found.Statement.Context, "statements run with the context that was given")
		outer := sqlTx(t, found)
		_, ok = other.a.TxFrom(ctx)
		require.False(t, ok, "it is of another pool")

		return outbox.InTx(ctx, other.a, func(ctx context.Context) error {
			innermost, ok := other.a.TxFrom(ctx)
			require.True(t, ok)
			require.NotSame(t, outer, sqlTx(t, innermost))
			ours, ok := f.a.TxFrom(ctx)
			require.True(t, ok)
			require.Same(t, outer, sqlTx(t, ours))
			return nil
		})
	}))
	_, ok = f.a.TxFrom(kept)
	require.False(t, ok, "the transaction is over")
}

func TestWithTx(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		write := func(ctx context.Context) error {
			_, err := f.writer.Write(ctx, adaptertest.Event())
			return err
		}
		var kept context.Context
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			ctx, err := f.a.WithTx(t.Context(), tx)
			require.NoError(t, err)
			kept = ctx //nolint:fatcontext // what the test is about.
			require.NoError(t, write(ctx))
			found, ok := f.a.TxFrom(ctx)
			require.True(t, ok)
			f.write(found)
			// The transactor makes a savepoint in it.
			require.ErrorIs(t, outbox.InTx(ctx, f.a, func(ctx context.Context) error {
				require.NoError(t, write(ctx))
				return errTest
			}), errTest)
			return nil
		}))
		require.ErrorIs(t, write(kept), outbox.ErrNoTransaction)
		f.want(2, "rollback", "commit", "commit")
	})
}

func TestWithTxFailsAsWriteDoes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, pool *testdb.DB) {
		f := newFixture(t, pool, &gorm.Config{})
		unmanaged := openPlain(t, f.pool, &gorm.Config{}).Begin()
		require.NoError(t, unmanaged.Error)
		defer unmanaged.Rollback()
		dry := f.Session(&gorm.Session{DryRun: true}).Begin()
		require.NoError(t, dry.Error)
		defer dry.Rollback()
		over := f.Begin()
		require.NoError(t, over.Commit().Error)
		for db, want := range map[*gorm.DB]error{
			nil: outbox.ErrNoTransaction, f.DB: outbox.ErrNoTransaction, over: outbox.ErrNoTransaction,
			unmanaged: outbox.ErrUnmanagedTransaction, dry: outboxgorm.ErrDryRun,
		} {
			_, err := f.a.WithTx(t.Context(), db)
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, f.refused(db), want)
		}
		f.want(0)
	})
}

func TestTransactorsTransactionEndsOnce(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	ctx, outer, err := f.a.Begin(t.Context(), nil)
	require.NoError(t, err)
	_, inner, err := f.a.Begin(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, inner.Commit())
	require.Error(t, inner.Commit())
	require.Error(t, inner.Rollback())
	_, open, err := f.a.Begin(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, outer.Rollback())
	require.Error(t, outer.Commit())
	require.Equal(t, sql.ErrTxDone, open.Rollback(), "it went with the transaction")
	require.Equal(t, sql.ErrTxDone, open.Commit())
	_, late, err := f.a.Begin(ctx, nil)
	require.NoError(t, err, "the one in the context is over, so this is a new one")
	require.NoError(t, late.Rollback())
}

func TestTransactorsSavepointThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		ctx, outer, err := f.a.Begin(t.Context(), nil)
		require.NoError(t, err)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err = f.a.Begin(ended, nil)
		require.ErrorIs(t, err, context.Canceled)

		tx, ok := f.a.TxFrom(ctx)
		require.True(t, ok)
		if f.pool.Kind == testdb.Postgres {
			require.NoError(t, tx.SavePoint("before").Error)
			require.Error(t, tx.Exec("no SQL").Error)
			_, _, err = f.a.Begin(ctx, nil)
			require.ErrorContains(t, err, "opening a savepoint")
			require.NoError(t, tx.RollbackTo("before").Error)
		}
		_, inner, err := f.a.Begin(ctx, nil)
		require.NoError(t, err, "the transaction is none the worse")
		require.NoError(t, inner.Commit())

		require.NoError(t, tx.Exec("ROLLBACK").Error)
		_, _, err = f.a.Begin(ctx, nil)
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		_ = outer.Commit() // without events, what the driver says
	})
}

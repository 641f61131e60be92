package outboxgorm_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	other := onSQLite(t, &gorm.Config{})

	_, err := outboxgorm.New(nil, nil)
	require.ErrorContains(t, err, "db is nil")
	_, err = outboxgorm.New(&gorm.DB{}, f.writer)
	require.ErrorContains(t, err, "was not made by gorm.Open")
	_, err = outboxgorm.New(f.DB, nil)
	require.EqualError(t, err, "outbox: outboxgorm.New writer is nil")
	_, err = outboxgorm.New(f.DB, other.writer)
	require.ErrorContains(t, err, "writes through another pool (*sql.DB) than db; give outbox.Config.DB the same *sql.DB")
	require.NotContains(t, err.Error(), "transaction")
	plain := f.pool.Via(t, nil)
	writer, _ := adaptertest.WriterWithoutTable(t, plain.DB, "sqlite")
	_, err = outboxgorm.New(open(t, plain, &gorm.Config{}), writer)
	require.ErrorContains(t, err, "sqltx.Open")
	require.ErrorContains(t, err, "sqltx.Watch(pool)")
	require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
		_, err := outboxgorm.New(tx, f.writer)
		require.ErrorContains(t, err, "is a transaction")
		return nil
	}))
}

// opaquePool hides its *sql.DB.
type opaquePool struct{ gorm.ConnPool }

func TestPlugin(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		plain := f.pool.Via(t, nil)
		for _, prepare := range []bool{false, true} {
			f.record = nil
			db := open(t, plain, &gorm.Config{PrepareStmt: prepare})
			require.NoError(t, db.Use(outboxgorm.Plugin{}))
			pool, err := db.DB()
			require.NoError(t, err)
			require.NotSame(t, plain.DB, pool)
			f.writer, f.record = adaptertest.WriterWithoutTable(t, pool, string(plain.Kind))
			f.a = mustNew(t, db, f.writer)
			before := adaptertest.Written(t, plain.DB)
			require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				return nil
			}))
			f.want(before+1, "commit")
			require.NoError(t, pool.Close())
			require.NoError(t, plain.PingContext(t.Context()))
		}
	})
	f := onSQLite(t, &gorm.Config{})
	opaque, err := gorm.Open(dialector(f.pool.Kind, opaquePool{f.pool.DB}), &gorm.Config{DisableAutomaticPing: true})
	require.NoError(t, err)
	require.ErrorContains(t, opaque.Use(outboxgorm.Plugin{}), "open the pool with sqltx.Open")
	_, err = gorm.Open(dialector(f.pool.Kind, opaquePool{f.pool.DB}), &gorm.Config{DisableAutomaticPing: true}, outboxgorm.Plugin{})
	require.ErrorContains(t, err, "open the pool with sqltx.Open", "as an option")
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		require.ErrorIs(t, f.refused(nil), outbox.ErrNoTransaction)
		require.ErrorIs(t, f.refused(&gorm.DB{}), outbox.ErrNoTransaction)
		err := f.refused(f.DB)
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, err, "write with the *gorm.DB that Transaction, Begin or a model hook gives")
		require.ErrorIs(t, f.refused(f.Session(&gorm.Session{PrepareStmt: true})), outbox.ErrNoTransaction)
		_, err = f.a.WriteAll(t.Context(), f.DB, nil)
		require.ErrorIs(t, err, outbox.ErrNoTransaction, "also for an empty list")

		tx := f.Begin()
		require.NoError(t, tx.Rollback().Error)
		require.ErrorIs(t, f.refused(tx), outbox.ErrNoTransaction, "it is over")
		f.want(0)
	})
}

func TestWriteWithAHandleThatHasAnError(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			failed := tx.First(&order{}, "id = ?", 77)
			require.ErrorIs(t, f.refused(failed), gorm.ErrRecordNotFound)
			f.write(tx) // it is the handle's error, not the transaction's
			return nil
		}))
		f.want(1, "commit")
	})
}

func TestWriteInATransactionOfAnotherPool(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		other := onSQLite(t, &gorm.Config{})
		require.NoError(t, other.Transaction(func(tx *gorm.DB) error {
			require.ErrorIs(t, f.refused(tx), outbox.ErrForeignTransaction)
			return nil
		}))
		f.want(0)
		other.want(0)
	})
}

func TestCommitOfTheSQLTx(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		tx := f.Begin()
		f.write(tx)
		require.NoError(t, sqlTx(t, tx).Commit())
		require.ErrorIs(t, tx.Commit().Error, sql.ErrTxDone)
		f.want(1, "commit")
	})
}

func TestUnmanagedTransactions(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		tx := openPlain(t, f.pool, &gorm.Config{PrepareStmt: true}).Begin()
		defer tx.Rollback()
		err := f.refused(tx)
		require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
		lenient, err := outboxgorm.New(f.DB, f.writer, outboxgorm.AllowUnmanaged())
		require.NoError(t, err)
		_, err = lenient.Write(t.Context(), tx, adaptertest.Event())
		require.NoError(t, err)
		require.NoError(t, tx.Commit().Error)
		f.want(1)
	})
}

// GORM takes a connection and begins transactions on it.
func TestConnection(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Connection(func(conn *gorm.DB) error {
			return conn.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				return nil
			})
		}))
		f.want(1, "commit")
	})
}

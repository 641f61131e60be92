package outboxgorm_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	other := onSQLite(t, &gorm.Config{})

	_, err := outboxgorm.New(nil, nil)
	require.ErrorContains(t, err, "outboxgorm.New db is nil")
	require.ErrorContains(t, err, "outboxgorm.New writer is nil")
	_, err = outboxgorm.New(&gorm.DB{}, f.writer)
	require.ErrorContains(t, err, "was not made by gorm.Open")
	_, err = outboxgorm.New(f.DB, nil)
	require.ErrorContains(t, err, "writer is nil")
	_, err = outboxgorm.New(f.DB, other.writer)
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	_, err = outboxgorm.New(openPlain(t, f.pool, &gorm.Config{}), f.writer)
	require.ErrorContains(t, err, "db.Use(outboxgorm.Plugin())")
	require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
		_, err := outboxgorm.New(tx, f.writer)
		require.ErrorContains(t, err, "is a transaction")
		return nil
	}))

	plain := openPlain(t, f.pool, &gorm.Config{})
	early := plain.WithContext(t.Context())
	require.NoError(t, plain.Use(outboxgorm.Plugin()))
	_, err = outboxgorm.New(early, f.writer)
	require.ErrorContains(t, err, "made before db.Use(outboxgorm.Plugin())")
}

// opaquePool does not tell its *sql.DB.
type opaquePool struct{ gorm.ConnPool }

func TestUseRefuses(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	require.ErrorIs(t, f.Use(outboxgorm.Plugin()), gorm.ErrRegistered)

	plain := openPlain(t, f.pool, &gorm.Config{})
	tx := plain.Begin()
	tx.ConnPool = tx.Statement.ConnPool
	require.ErrorContains(t, tx.Use(outboxgorm.Plugin()), "Use of a transaction")
	require.NoError(t, tx.Rollback().Error)

	for _, prepare := range []bool{false, true} {
		opaque, err := gorm.Open(dialector(f.pool.Kind, opaquePool{f.pool.DB}), &gorm.Config{PrepareStmt: prepare, DisableAutomaticPing: true})
		require.NoError(t, err)
		require.ErrorContains(t, opaque.Use(outboxgorm.Plugin()), "opaquePool; give it the method GetDBConn")
	}
}

func TestPluginInTheConfig(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		f := onSQLite(t, &gorm.Config{})
		db, err := gorm.Open(dialector(f.pool.Kind, f.pool.DB), &gorm.Config{
			PrepareStmt: prepare, Logger: logger.Discard, Plugins: map[string]gorm.Plugin{"events": outboxgorm.Plugin()},
		})
		require.NoError(t, err)
		f.a = mustNew(t, db, f.writer)
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
			f.write(tx)
			return nil
		}))
		f.want(1, "commit")
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
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
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
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
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		other := onSQLite(t, &gorm.Config{})
		require.NoError(t, other.Transaction(func(tx *gorm.DB) error {
			require.ErrorIs(t, f.refused(tx), outbox.ErrForeignTransaction)
			return nil
		}))
		unmanaged := openPlain(t, other.pool, &gorm.Config{}).Begin()
		require.ErrorIs(t, f.refused(unmanaged), outbox.ErrForeignTransaction)
		require.NoError(t, unmanaged.Rollback().Error)
		f.want(0)
		other.want(0)
	})
}

func TestHandlesMadeBeforeUseAreUnmanaged(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, pool *testdb.DB) {
		writer, record := adaptertest.Writer(t, pool.DB, string(pool.Kind))
		plain := openPlain(t, pool, &gorm.Config{})
		early := plain.WithContext(t.Context())
		require.NoError(t, plain.Use(outboxgorm.Plugin()))
		strict, err := outboxgorm.New(plain, writer)
		require.NoError(t, err)
		lenient, err := outboxgorm.New(plain, writer, outboxgorm.AllowUnmanaged())
		require.NoError(t, err)

		require.NoError(t, early.Transaction(func(tx *gorm.DB) error {
			_, err := strict.Write(t.Context(), tx, adaptertest.Event())
			require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
			for _, hint := range []string{"db.Use(outboxgorm.Plugin())", "outboxgorm.Connection", "AllowUnmanaged"} {
				require.ErrorContains(t, err, hint)
			}
			_, err = lenient.Write(t.Context(), tx, adaptertest.Event())
			return err
		}))
		require.Equal(t, 1, adaptertest.Written(t, pool.DB))
		require.Empty(t, record.Outcomes(), "the poller delivers it")

		over := early.Begin()
		require.NoError(t, over.Commit().Error)
		_, err = lenient.Write(t.Context(), over, adaptertest.Event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		failed := early.Begin()
		_, err = lenient.Write(t.Context(), failed.First(&struct{ ID int }{}, "no_such_column"), adaptertest.Event())
		require.ErrorContains(t, err, "*gorm.DB that has an error")
		require.NoError(t, failed.Rollback().Error)
	})
}

// With prepared statements, handles share what the plugin is put into.
func TestPreparedHandlesMadeBeforeUseAreManaged(t *testing.T) {
	t.Parallel()
	pool := testdb.Open(t, sqliteTarget())
	writer, record := adaptertest.Writer(t, pool.DB, string(pool.Kind))
	plain := openPlain(t, pool, &gorm.Config{PrepareStmt: true})
	early := plain.WithContext(t.Context())
	require.NoError(t, plain.Use(outboxgorm.Plugin()))
	a, err := outboxgorm.New(early, writer)
	require.NoError(t, err)
	require.NoError(t, early.Transaction(func(tx *gorm.DB) error {
		_, err := a.Write(t.Context(), tx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"commit"}, record.Outcomes())
}

func TestSQLTx(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			f.write(tx)
			sqlTx, err := outboxgorm.SQLTx(tx)
			require.NoError(t, err)
			var n int
			require.NoError(t, sqlTx.QueryRowContext(t.Context(), "SELECT count(*) FROM written").Scan(&n))
			require.Equal(t, 1, n, "it is the same transaction")
			return nil
		}))
		f.want(1, "commit")

		tx := openPlain(t, f.pool, &gorm.Config{PrepareStmt: true}).Begin()
		_, err := outboxgorm.SQLTx(tx)
		require.NoError(t, err, "an unmanaged one has one too")
		require.NoError(t, tx.Rollback().Error)

		for _, db := range []*gorm.DB{f.DB, nil, {}} {
			_, err = outboxgorm.SQLTx(db)
			require.ErrorIs(t, err, outbox.ErrNoTransaction)
		}
	})
}

func TestCommitOfTheSQLTxIsUnknown(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		for _, end := range []func(tx *gorm.DB) *gorm.DB{(*gorm.DB).Commit, (*gorm.DB).Rollback} {
			tx := f.Begin()
			f.write(tx)
			sqlTx, err := outboxgorm.SQLTx(tx)
			require.NoError(t, err)
			require.NoError(t, sqlTx.Commit())
			require.ErrorIs(t, end(tx).Error, sql.ErrTxDone)
		}
		f.want(2, "unknown", "unknown")
	})
}

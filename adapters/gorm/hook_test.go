package outboxgorm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// The transactions here are those that GORM begins by itself.
func TestModelHooksWriteInImplicitTransactions(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		hook := func(tx *gorm.DB) error {
			f.write(tx)
			return nil
		}
		o := &order{Name: "a", hook: hook}
		require.NoError(t, f.Create(o).Error)
		f.want(1, "commit")
		require.NoError(t, f.Model(o).Update("name", "b").Error)
		o.Name = "c"
		require.NoError(t, f.Save(o).Error)
		require.NoError(t, f.Delete(o).Error)
		f.want(4, "commit", "commit", "commit", "commit")
		require.NoError(t, f.Create([]*order{{hook: hook}, {hook: hook}}).Error)
		f.want(6, "commit", "commit", "commit", "commit", "commit", "commit")
	})
}

func TestModelHookInBatchesIsOneTransaction(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		n := 0
		hook := func(tx *gorm.DB) error {
			f.write(tx)
			if n++; n == 5 {
				return errTest
			}
			return nil
		}
		orders := make([]*order, 5)
		for i := range orders {
			orders[i] = &order{hook: hook}
		}
		require.ErrorIs(t, f.CreateInBatches(orders, 2).Error, errTest)
		require.Zero(t, f.orders())
		f.want(0, "rollback", "rollback", "rollback", "rollback", "rollback")
	})
}

func TestModelHookThatFailsUndoesItsEvent(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		require.ErrorIs(t, f.Create(&order{hook: func(tx *gorm.DB) error {
			f.write(tx)
			return errTest
		}}).Error, errTest)
		require.Zero(t, f.orders())
		f.want(0, "rollback")
	})
}

func TestModelHookInAnExplicitTransaction(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			hook := func(tx *gorm.DB) error {
				f.write(tx)
				return nil
			}
			require.NoError(t, tx.Create(&order{hook: hook}).Error)
			require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, tx.Create(&order{hook: hook}).Error)
				return errTest
			}), errTest)
			return nil
		}))
		require.EqualValues(t, 1, f.orders())
		f.want(1, "rollback", "commit")
	})
}

// Services that a model hook calls often have a context and nothing else.
func TestModelHookWritesThroughItsContext(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	require.NoError(t, f.Create(&order{hook: func(tx *gorm.DB) error {
		_, err := f.writer.Write(outboxgorm.WithTx(tx.Statement.Context, tx), adaptertest.Event())
		return err
	}}).Error)
	f.want(1, "commit")
}

// The hook runs with the context of the statement, which Begin's carries.
func TestModelHookInTheTransactorsTransaction(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	ctx, tx, err := f.a.Begin(t.Context(), nil)
	require.NoError(t, err)
	db, ok := f.a.TxFrom(ctx)
	require.True(t, ok)
	require.NoError(t, db.Create(&order{hook: func(tx *gorm.DB) error {
		_, err := f.writer.Write(tx.Statement.Context, adaptertest.Event())
		return err
	}}).Error)
	require.NoError(t, tx.Commit())
	f.want(1, "commit")
}

func TestSkipDefaultTransactionLeavesAModelHookWithout(t *testing.T) {
	t.Parallel()
	eachConfig(t, testdb.Main(), gorm.Config{SkipDefaultTransaction: true}, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Create(&order{hook: func(tx *gorm.DB) error {
			err := f.refused(tx)
			require.ErrorIs(t, err, outbox.ErrNoTransaction)
			require.ErrorContains(t, err, "SkipDefaultTransaction")
			return nil
		}}).Error)
		require.EqualValues(t, 1, f.orders())
		f.want(0)
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			return tx.Create(&order{hook: func(tx *gorm.DB) error {
				f.write(tx)
				return nil
			}}).Error
		}))
		f.want(1, "commit")
	})
}

func TestDryRunWritesNoEvent(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		calls := 0
		dry := f.Session(&gorm.Session{DryRun: true})
		require.ErrorIs(t, dry.Create(&order{hook: func(tx *gorm.DB) error {
			calls++
			return f.refused(tx)
		}}).Error, outboxgorm.ErrDryRun)
		require.Equal(t, 1, calls, "model hooks run")
		require.NoError(t, dry.Transaction(func(tx *gorm.DB) error {
			require.ErrorIs(t, f.refused(tx), outboxgorm.ErrDryRun)
			return nil
		}))
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			require.ErrorIs(t, f.refused(tx.Session(&gorm.Session{DryRun: true})), outboxgorm.ErrDryRun)
			f.write(tx)
			return nil
		}))
		f.want(1, "commit")
	})
}

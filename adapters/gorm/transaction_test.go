package outboxgorm_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func TestHandlesDerivedFromATransactionAreInIt(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			for _, derived := range []*gorm.DB{
				tx,
				tx.WithContext(context.WithoutCancel(t.Context())),
				tx.Session(&gorm.Session{}),
				tx.Session(&gorm.Session{NewDB: true}),
				tx.Session(&gorm.Session{PrepareStmt: true}),
				tx.Session(&gorm.Session{PrepareStmt: true}).Session(&gorm.Session{PrepareStmt: true}),
				tx.Session(&gorm.Session{SkipDefaultTransaction: true, SkipHooks: true}),
				tx.Debug(),
				tx.Where("no_such_column = ?", 1).Order("nonsense"),
				tx.Table("no_such_table").Clauses(clause.Locking{Strength: "UPDATE"}),
				tx.Model(&order{}).Unscoped(),
			} {
				f.write(derived)
			}
			return nil
		}))
		n := 11
		outcomes := make([]string, n)
		for i := range outcomes {
			outcomes[i] = "commit"
		}
		f.want(n, outcomes...)
	})
}

func TestSessionsWithPreparedStatements(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, pool *testdb.DB) {
		f := newFixture(t, pool, &gorm.Config{})
		session := f.Session(&gorm.Session{PrepareStmt: true})
		if preparesNoSavepoints(t, pool) {
			require.NoError(t, session.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				requireNotPrepared(t, tx.Exec("SAVEPOINT a").Error)
				return nil
			}))
			f.want(1, "commit")
			return
		}
		for range 2 {
			require.NoError(t, session.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				require.NoError(t, tx.Exec("SAVEPOINT a").Error)
				f.write(tx)
				return tx.Exec("ROLLBACK TO SAVEPOINT a").Error
			}))
		}
		f.want(2, "rollback", "commit", "rollback", "commit")
	})
}

func TestBeginCommitAndRollback(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		tx := f.Begin(&sql.TxOptions{Isolation: sql.LevelSerializable})
		require.NoError(t, tx.Error)
		require.NoError(t, tx.Create(&order{Name: "a"}).Error)
		f.write(tx)
		require.NoError(t, tx.Commit().Error)
		require.ErrorIs(t, tx.Rollback().Error, sql.ErrTxDone)
		f.want(1, "commit")

		tx = f.Begin()
		require.NoError(t, tx.Create(&order{Name: "b"}).Error)
		f.write(tx)
		require.NoError(t, tx.Rollback().Error)
		require.ErrorIs(t, tx.Commit().Error, sql.ErrTxDone)
		f.want(1, "commit", "rollback")
		require.EqualValues(t, 1, f.orders())
	})
}

func TestBeginInATransactionFails(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main()[:1], func(t *testing.T, f *fixture) {
		tx := f.Begin()
		require.ErrorIs(t, tx.Begin().Error, gorm.ErrInvalidTransaction, "as without the plugin")
		f.write(tx)
		require.NoError(t, tx.Commit().Error)
		f.want(1, "commit")
	})
}

func TestBeginThatFails(t *testing.T) {
	t.Parallel()
	each(t, []testdb.Target{sqliteTarget()}, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tx := f.WithContext(ctx).Begin()
		require.ErrorIs(t, tx.Error, context.Canceled)
		require.ErrorIs(t, f.refused(tx), context.Canceled)
		if !f.PrepareStmt {
			require.Equal(t, context.Canceled, tx.Rollback().Error, "and nothing more, as without the plugin")
		}
		require.NotPanics(t, func() { tx.Rollback() })
		require.ErrorIs(t, tx.Commit().Error, gorm.ErrInvalidTransaction)
		require.ErrorIs(t, f.WithContext(ctx).Transaction(func(*gorm.DB) error {
			t.Error("the function ran")
			return nil
		}), context.Canceled)
		require.ErrorIs(t, f.WithContext(ctx).Create(&order{}).Error, context.Canceled)
		f.want(0)
	})
}

func TestNestedTransactions(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			f.write(tx)
			require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				return errTest
			}), errTest)
			f.record.EventuallyInAnyOrder(f.t, "rollback")
			require.NoError(t, tx.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				return tx.Transaction(func(tx *gorm.DB) error {
					f.write(tx)
					return nil
				})
			}))
			require.Panics(t, func() {
				_ = tx.Transaction(func(tx *gorm.DB) error {
					f.write(tx)
					panic("no")
				})
			})
			return nil
		}))
		f.want(3, "rollback", "rollback", "commit", "commit", "commit")
	})
}

func TestSavePointAndRollbackTo(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		tx := f.Begin()
		f.write(tx)
		require.NoError(t, tx.SavePoint("here").Error)
		f.write(tx)
		require.NoError(t, tx.RollbackTo("here").Error)
		f.record.EventuallyInAnyOrder(f.t, "rollback")
		f.write(tx)
		require.NoError(t, tx.RollbackTo("here").Error, "it is still there")
		f.write(tx)
		require.NoError(t, tx.Commit().Error)
		f.want(2, "rollback", "rollback", "commit", "commit")
	})
}

// With DisableNestedTransaction an inner error that is swallowed undoes nothing.
func TestDisableNestedTransaction(t *testing.T) {
	t.Parallel()
	eachConfig(t, adaptertest.Main(), gorm.Config{DisableNestedTransaction: true}, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			f.write(tx)
			require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				return errTest
			}), errTest)
			return nil
		}))
		f.want(2, "commit", "commit")
	})
}

func TestReadsAreUnchanged(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Create([]order{{Name: "a"}, {Name: "b"}, {Name: "c"}}).Error)
		read := func(db *gorm.DB) {
			var one order
			require.NoError(t, db.Clauses(clause.Locking{Strength: "UPDATE"}).First(&one, "name = ?", "b").Error)
			require.Equal(t, "b", one.Name)
			var n int
			require.NoError(t, db.Raw("SELECT count(*) FROM orders").Row().Scan(&n))
			require.Equal(t, 3, n)
			rows, err := db.Model(&order{}).Rows()
			require.NoError(t, err)
			for n = 0; rows.Next(); n++ {
				require.NoError(t, db.ScanRows(rows, &one))
			}
			require.NoError(t, rows.Close())
			require.Equal(t, 3, n)
			var names []string
			require.NoError(t, db.Model(&order{}).Order("name").Pluck("name", &names).Error)
			require.Equal(t, []string{"a", "b", "c"}, names)
			require.ErrorIs(t, db.First(&order{}, "name = ?", "z").Error, gorm.ErrRecordNotFound)
		}
		read(f.DB)
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			read(tx)
			f.write(tx)
			return nil
		}))
		f.want(1, "commit")
	})
}

func TestMigratorInATransaction(t *testing.T) {
	t.Parallel()
	type invoice struct{ ID uint }
	each(t, append(targetsOf(testdb.Postgres)[:1], sqliteTarget()), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, tx.AutoMigrate(&invoice{}))
			f.write(tx)
			return tx.Create(&invoice{}).Error
		}))
		f.want(1, "commit")
	})
}

func TestLoggersSeeNothingOfTheEvents(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	log := &queryLog{}
	require.NoError(t, f.Session(&gorm.Session{Logger: log}).Transaction(func(tx *gorm.DB) error {
		f.write(tx)
		return tx.Create(&order{Name: "a"}).Error
	}))
	require.Len(t, log.queries, 1)
	require.Contains(t, log.queries[0], "INSERT INTO `orders`")
	require.Equal(t, 1, adaptertest.Written(t, f.pool.DB))
}

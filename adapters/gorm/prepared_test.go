package outboxgorm_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// With prepared statements GORM sends raw SQL to *sql.Stmt, where nobody sees
// it. Each round has the same text, so that GORM finds it in its cache.
func TestRawSavepointsInEveryForm(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		if f.PrepareStmt && preparesNoSavepoints(t, f.pool) {
			require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				requireNotPrepared(t, tx.Exec("SAVEPOINT a").Error)
				f.write(tx)
				return nil
			}))
			f.want(2, "commit", "commit")
			return
		}
		for round := range 3 {
			require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
				before := 5 * round // the callback of the last commit may still be on its way
				undone := func(n int) {
					t.Helper()
					require.Eventually(t, func() bool { return len(f.record.Outcomes()) == before+n }, 20*time.Second, time.Millisecond)
				}
				f.write(tx)
				require.NoError(t, tx.Exec("SAVEPOINT a").Error)
				f.write(tx)
				require.NoError(t, tx.Exec("ROLLBACK TO SAVEPOINT a").Error)
				undone(1)
				f.write(tx)
				var none []map[string]any
				require.NoError(t, tx.Raw("ROLLBACK TO SAVEPOINT a").Scan(&none).Error)
				undone(2)
				f.write(tx)
				rows, err := tx.Raw("ROLLBACK TO SAVEPOINT a").Rows()
				require.NoError(t, err)
				require.NoError(t, rows.Close())
				require.NoError(t, rows.Err())
				undone(3)
				f.write(tx)
				var nothing int
				require.ErrorIs(t, tx.Raw("ROLLBACK TO SAVEPOINT a").Row().Scan(&nothing), sql.ErrNoRows)
				undone(4)
				return tx.Exec("RELEASE SAVEPOINT a").Error
			}))
		}
		round := []string{"rollback", "rollback", "rollback", "rollback", "commit"}
		f.want(3, append(append(round, round...), round...)...)
	})
}

// preparesNoSavepoints reports whether the server is MySQL, which prepares no statements
// for savepoints.
func preparesNoSavepoints(t *testing.T, db *testdb.DB) bool {
	t.Helper()
	return db.Kind == testdb.MySQL && !db.IsMariaDB(t)
}

func requireNotPrepared(t *testing.T, err error) {
	t.Helper()
	require.True(t, sqlerr.HasNumber(err, 1295), "%v", err)
}

// A chain goes on with the handle on which a raw statement ran: with prepared
// statements, again.
func TestHandleOfARawSavepointStaysPrepared(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{PrepareStmt: true})
	require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
		handle := tx.Exec("SAVEPOINT a")
		require.NoError(t, handle.Error)
		require.IsType(t, tx.Statement.ConnPool, handle.Statement.ConnPool)
		require.IsType(t, &gorm.PreparedStmtTX{}, handle.Statement.ConnPool)
		f.write(handle)
		return handle.Exec("ROLLBACK TO a").Error
	}))
	f.want(0, "rollback")
}

// Callbacks of the user's that GORM runs with such a statement are in the
// transaction too.
func TestUsersCallbackOnARawSavepoint(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{PrepareStmt: true})
	require.NoError(t, f.Callback().Raw().After("gorm:raw").Register("test:audit", func(tx *gorm.DB) { f.write(tx) }))
	require.NoError(t, f.Transaction(func(tx *gorm.DB) error { return tx.Exec("SAVEPOINT a").Error }))
	f.want(1, "commit")
}

// What fails in a transaction and is swallowed dooms it on PostgreSQL; pgdriver's
// COMMIT says nothing of that.
func TestSwallowedErrorsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	each(t, targetsOf(testdb.Postgres), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Create(&order{ID: 1}).Error)
		for name, fail := range map[string]func(tx *gorm.DB) error{
			"Create": func(tx *gorm.DB) error { return tx.Create(&order{ID: 1}).Error },
			"Update": func(tx *gorm.DB) error { return tx.Model(&order{ID: 1}).Update("no_such_column", 1).Error },
			"Delete": func(tx *gorm.DB) error { return tx.Where("no_such_column").Delete(&order{}).Error },
			"First":  func(tx *gorm.DB) error { return tx.First(&order{}, "no_such_column").Error },
			"Row": func(tx *gorm.DB) error {
				var n int
				return tx.Raw("SELECT 1 / (id - 1) FROM orders").Row().Scan(&n) // fails when it runs
			},
			"Exec": func(tx *gorm.DB) error { return tx.Exec("no SQL").Error },
		} {
			before := len(f.record.Outcomes())
			require.Error(t, f.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				require.Error(t, fail(tx), name)
				return nil
			}), name)
			require.Eventually(t, func() bool { return len(f.record.Outcomes()) > before }, 20*time.Second, time.Millisecond)
			require.Equal(t, []string{"rollback"}, f.record.Outcomes()[before:], name)
		}
		require.Zero(t, adaptertest.Written(t, f.pool.DB))
		f.DB = f.Session(&gorm.Session{NewDB: true})
		require.EqualValues(t, 1, f.orders(), "the pool is none the worse")
	})
}

// A savepoint of the transactor's must know of an error in it before it is
// released: pgdriver would drop the connection over that.
func TestSwallowedErrorInTheTransactorsSavepoint(t *testing.T) {
	t.Parallel()
	each(t, targetsOf(testdb.Postgres), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Create(&order{ID: 1}).Error)
		ctx, outer, err := f.a.Begin(t.Context(), nil)
		require.NoError(t, err)
		_, err = f.writer.Write(ctx, adaptertest.Event())
		require.NoError(t, err)
		innerCtx, inner, err := f.a.Begin(ctx, nil)
		require.NoError(t, err)
		_, err = f.writer.Write(innerCtx, adaptertest.Event())
		require.NoError(t, err)
		tx, ok := f.a.TxFrom(innerCtx)
		require.True(t, ok)
		require.Error(t, tx.Create(&order{ID: 1}).Error)
		require.Error(t, inner.Commit())
		require.NoError(t, outer.Commit())
		f.want(1, "rollback", "commit")
	})
}

// A deadlock on MySQL undoes the transaction and leaves the connection, so that
// the next insert would commit by itself.
func TestSwallowedDeadlocks(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(tx *gorm.DB, id uint) error{
		"Update": func(tx *gorm.DB, id uint) error {
			return tx.Model(&order{ID: id}).Update("name", "mine").Error
		},
		"Save": func(tx *gorm.DB, id uint) error { return tx.Save(&order{ID: id, Name: "mine"}).Error },
		"First": func(tx *gorm.DB, id uint) error {
			return tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&order{}, id).Error
		},
		"Delete": func(tx *gorm.DB, id uint) error { return tx.Delete(&order{ID: id}).Error },
		"Exec": func(tx *gorm.DB, id uint) error {
			return tx.Exec("UPDATE orders SET name = ? WHERE id = ?", "mine", id).Error
		},
		"Row": func(tx *gorm.DB, id uint) error {
			var n uint
			return tx.Raw("SELECT id FROM orders WHERE id = ? FOR UPDATE", id).Row().Scan(&n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, targetsOf(testdb.MySQL), func(_ *testing.T, f *fixture) { swallowedDeadlock(f, lock) })
		})
	}
}

func swallowedDeadlock(f *fixture, lock func(tx *gorm.DB, id uint) error) {
	t := f.t
	require.NoError(t, f.Create([]order{{ID: 1}, {ID: 2}}).Error)
	// InnoDB chooses the lighter transaction, which ours is.
	heavy, err := f.pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = heavy.Rollback() }()
	for id := range 20 {
		_, err = heavy.ExecContext(t.Context(), "INSERT INTO orders (id, name) VALUES (?, 'heavy')", 100+id)
		require.NoError(t, err)
	}
	_, err = heavy.ExecContext(t.Context(), "UPDATE orders SET name = 'theirs' WHERE id = 1")
	require.NoError(t, err)

	tx := f.Begin()
	require.NoError(t, tx.Error)
	f.write(tx)
	require.NoError(t, lock(tx, 2))
	blocked := make(chan error, 1)
	go func() {
		_, err := heavy.ExecContext(t.Context(), "UPDATE orders SET name = 'theirs' WHERE id = 2")
		blocked <- err
	}()
	require.Error(t, lock(tx, 1), "a deadlock")
	require.NoError(t, <-blocked)
	require.ErrorIs(t, f.refused(tx), outbox.ErrNoTransaction)
	require.Error(t, tx.Commit().Error)
	f.want(0, "rollback")
}

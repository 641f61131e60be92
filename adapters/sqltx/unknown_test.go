package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestLostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, direct *testdb.DB) {
		createTable(t, direct.DB)
		proxied, cuts := direct.CutCommits(t)
		db := proxied.DB
		var causes []error
		committed := 0
		a := sqltx.New(db, newWriter(t, db, string(direct.Kind), outbox.WriterHook{
			AfterCommit:   func(context.Context, []outbox.Envelope) { committed++ },
			AfterRollback: func(_ context.Context, _ []outbox.Envelope, cause error) { causes = append(causes, cause) },
		}))
		err := a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
			_, err := a.Write(ctx, tx, event())
			return err
		})
		require.Equal(t, int32(1), cuts.Load())
		require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
		require.Zero(t, committed)
		require.Len(t, causes, 1)
		require.ErrorIs(t, causes[0], outbox.ErrOutcomeUnknown)
		require.Equal(t, 1, written(t, direct.DB), "it was committed all the same")
	})
}

func TestCommitOfTheEmbeddedTransactionIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		createTable(t, db.DB)
		rec := &record{}
		a := sqltx.New(db.DB, newWriter(t, db.DB, string(db.Kind), rec.hook()))
		for _, end := range []func(tx *sqltx.Tx) error{(*sqltx.Tx).Commit, (*sqltx.Tx).Rollback} {
			tx, err := a.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = a.Write(t.Context(), tx, event())
			require.NoError(t, err)
			require.NoError(t, tx.Tx.Commit())
			require.ErrorIs(t, end(tx), sql.ErrTxDone)
		}
		require.Equal(t, []string{"unknown", "unknown"}, rec.all())
		require.Equal(t, 2, written(t, db.DB))
	})
}

// A transaction that was committed behind the wrapper's back and then forgotten
// leaves nothing behind, and its events are not kept from the poller.
func TestForgottenTransactionIsCollected(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
	func() {
		tx, err := a.BeginTx(context.Background(), nil) //nolint:usetesting // a context without an end.
		require.NoError(t, err)
		_, err = a.Write(t.Context(), tx, event())
		require.NoError(t, err)
		require.NoError(t, tx.Tx.Commit())
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(rec.all()) == 1
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, []string{"unknown"}, rec.all())
}

// The plain transaction is found as long as it is open, even when nobody holds
// the wrapper.
func TestOpenTransactionIsNotCollected(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
	ctx, cancel := context.WithCancel(t.Context())
	plain := func() *sql.Tx {
		tx, err := a.BeginTx(ctx, nil)
		require.NoError(t, err)
		return tx.Tx
	}()
	for range 3 {
		runtime.GC()
	}
	_, err := a.Write(t.Context(), plain, event())
	require.NoError(t, err)
	cancel()
	require.Eventually(t, func() bool { return len(rec.all()) == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []string{"rollback"}, rec.all())
	_, err = a.Write(t.Context(), plain, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
}

// SQLite answers COMMIT with SQLITE_BUSY while somebody reads, unless in WAL
// mode, and by itself would leave the transaction open.
func TestBusyCommitOfSQLiteIsRolledBack(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		if target.Kind != testdb.SQLite {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			driver := map[string]string{"sqlite": "sqlite", "sqlite/mattn": "sqlite3"}[target.Name]
			dsn := "file:" + filepath.Join(t.TempDir(), "busy.db") // testdb's would be in WAL mode
			open := func() *sql.DB {
				db, err := sql.Open(driver, dsn)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				db.SetMaxOpenConns(1)
				_, err = db.ExecContext(t.Context(), "PRAGMA busy_timeout = 0")
				require.NoError(t, err)
				return db
			}
			writing := open()
			createTable(t, writing)
			rec := &record{}
			a := sqltx.New(writing, newWriter(t, writing, "sqlite", rec.hook()))
			write := func() error {
				return a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
					_, err := a.Write(ctx, tx, event())
					return err
				})
			}
			require.NoError(t, write())

			reading, err := open().Conn(t.Context())
			require.NoError(t, err)
			rows, err := reading.QueryContext(t.Context(), "SELECT id FROM written UNION ALL SELECT id FROM written")
			require.NoError(t, err)
			require.True(t, rows.Next())
			err = write()
			require.Error(t, err)
			require.False(t, errors.Is(err, outbox.ErrOutcomeUnknown), err)
			require.NoError(t, rows.Close())
			require.NoError(t, rows.Err())
			require.NoError(t, reading.Close())

			require.NoError(t, write(), "the connection is usable")
			require.Equal(t, []string{"commit", "rollback", "commit"}, rec.all())
			require.Equal(t, 2, written(t, writing))
		})
	}
}

func TestWriteAfterACommitBehindOurBack(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		createTable(t, db.DB)
		rec := &record{}
		a := sqltx.New(db.DB, newWriter(t, db.DB, string(db.Kind), rec.hook()))
		tx, err := a.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		write(t, a, tx)
		require.NoError(t, tx.Tx.Commit())
		for _, handle := range []sqltx.AnyTx{tx, tx.Tx} {
			_, err = a.Write(t.Context(), handle, event())
			require.ErrorIs(t, err, outbox.ErrNoTransaction)
			require.ErrorIs(t, err, sql.ErrTxDone)
		}
		require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
		require.Equal(t, []string{"unknown"}, rec.all())
		require.Equal(t, 1, written(t, db.DB))
	})
}

func TestRollbackRacesTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		createTable(t, db.DB)
		rec := &record{}
		wrapped := wrappedPool(t, db)
		own := sqltx.New(db.DB, newWriter(t, db.DB, string(db.Kind), rec.hook()))
		plain := sqltx.New(wrapped, newWriter(t, wrapped, string(db.Kind), rec.hook()))
		for n := range 40 {
			ctx, cancel := context.WithCancel(t.Context())
			a, tx, err := own, sqltx.AnyTx(nil), error(nil)
			if n%2 == 0 {
				tx, err = own.BeginTx(ctx, nil)
			} else {
				a = plain
				tx, err = wrapped.BeginTx(ctx, nil)
			}
			require.NoError(t, err)
			write(t, a, tx)
			go cancel()
			if err := tx.Rollback(); err != nil {
				require.ErrorIs(t, err, sql.ErrTxDone)
			}
			// The other one may still be at it.
			require.Eventually(t, func() bool { return len(rec.all()) == n+1 }, 20*time.Second, time.Millisecond)
			require.Equal(t, "rollback", rec.all()[n])
		}
		require.Zero(t, written(t, db.DB))
	})
}

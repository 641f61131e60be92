package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestLostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, direct *testdb.DB) {
		proxied, cuts := direct.CutCommits(t)
		createTable(t, direct.DB)
		f := newFixture(t, followedPool(t, proxied), string(direct.Kind))
		tx := begin(t, f.db)
		write(t, f.a, tx)
		err := tx.Commit()
		require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
		require.NotEqual(t, outbox.ErrOutcomeUnknown, err, "and the driver's")
		f.rec.Eventually(t, "unknown")

		err = f.a.RunInTx(t.Context(), nil, func(_ context.Context, tx *sql.Tx) error {
			write(t, f.a, tx)
			return nil
		})
		require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
		require.Equal(t, []string{"unknown", "unknown"}, f.rec.Outcomes(), "before RunInTx returns")
		require.Equal(t, int32(2), cuts.Load())
		require.Equal(t, 2, written(t, direct.DB), "it was committed all the same")
	})
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
			name := map[string]string{"sqlite": "sqlite", "sqlite/mattn": "sqlite3"}[target.Name]
			dsn := "file:" + filepath.Join(t.TempDir(), "busy.db") // testdb's would be in WAL mode
			open := func() *sql.DB {
				db, err := sqltx.Open(name, dsn)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				db.SetMaxOpenConns(1)
				exec(t, db, "PRAGMA busy_timeout = 0")
				return db
			}
			writing := open()
			createTable(t, writing)
			f := newFixture(t, writing, "sqlite")
			write := func() error {
				return f.a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := f.a.Write(ctx, tx, event())
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
			require.Equal(t, []string{"commit", "rollback", "commit"}, f.rec.Outcomes())
			require.Equal(t, 2, written(t, writing))
		})
	}
}

// stubborn is a driver that leaves the transaction open when COMMIT fails, as
// glebarez/sqlite does.
type stubborn struct {
	nothing
	commit, rollback error
	open             *atomic.Bool
	opened, closed   *atomic.Int32
}

func (s stubborn) Connect(context.Context) (driver.Conn, error) { s.opened.Add(1); return s, nil }
func (s stubborn) Commit() error                                { return s.commit }
func (s stubborn) Rollback() error                              { return s.undo() }
func (s stubborn) Close() error                                 { s.closed.Add(1); return nil }

func (s stubborn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	s.open.Store(true)
	return s, nil
}

func (s stubborn) undo() error {
	if s.rollback == nil {
		s.open.Store(false)
	}
	return s.rollback
}

func (s stubborn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if query == "ROLLBACK" {
		return driver.ResultNoRows, s.undo()
	}
	return driver.ResultNoRows, nil
}

// refusal is PostgreSQL's definite error.
type refusal struct{ error }

func (refusal) SQLState() string { return "23505" }

func TestFailedCommitLeavesNoTransactionInThePool(t *testing.T) {
	t.Parallel()
	refused, lost := refusal{errors.New("duplicate")}, errors.New("no answer")
	for name, test := range map[string]struct {
		commit, rollback error
		end              string
		discarded        bool
	}{
		"refused":                                 {refused, nil, "rollback", false},
		"refused, and ROLLBACK fails":             {refused, errors.New("no"), "rollback", true},
		"refused, and the driver has undone it":   {refused, errors.New("cannot rollback - no transaction is active"), "rollback", false},
		"no answer":                               {lost, nil, "unknown", true},
		"ended behind the back of the driver":     {errors.New("cannot commit - no transaction is active"), nil, "unknown", false},
		"wrapped refusal, as a tracer's would be": {errors.Join(refused), nil, "rollback", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := stubborn{commit: test.commit, rollback: test.rollback, open: new(atomic.Bool), opened: new(atomic.Int32), closed: new(atomic.Int32)}
			f := newFixture(t, open(t, inner), "postgres")
			for _, events := range []bool{true, false} {
				inner.opened.Store(0)
				inner.closed.Store(0)
				tx := begin(t, f.db)
				if events {
					write(t, f.a, tx)
				}
				err := tx.Commit()
				require.ErrorIs(t, err, test.commit)
				require.Equal(t, events && test.end == "unknown", errors.Is(err, outbox.ErrOutcomeUnknown))
				require.Equal(t, test.discarded, inner.closed.Load() == 1)
				require.Equal(t, test.end == "rollback" && test.rollback == nil, !inner.open.Load())
			}
			f.rec.Eventually(t, test.end)
		})
	}
}

func TestConnectionWhoseRollbackFailsIsDiscarded(t *testing.T) {
	t.Parallel()
	inner := stubborn{rollback: errors.New("no"), open: new(atomic.Bool), opened: new(atomic.Int32), closed: new(atomic.Int32)}
	f := newFixture(t, open(t, inner), "sqlite")
	tx := begin(t, f.db)
	write(t, f.a, tx)
	require.Error(t, tx.Rollback())
	require.Equal(t, int32(1), inner.closed.Load())
	f.rec.Eventually(t, "rollback")
}

func TestRollbackRacesTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, plain *testdb.DB) {
		f := followed(t, plain)
		for n := range 40 {
			ctx, cancel := context.WithCancel(t.Context())
			var tx interface{ Rollback() error }
			var err error
			if n%2 == 0 {
				ctx, tx, err = f.a.Begin(ctx, nil)
			} else {
				sqlTx, beginErr := f.db.BeginTx(ctx, nil)
				require.NoError(t, beginErr)
				tx = sqlTx
				ctx, err = f.a.WithTx(ctx, sqlTx)
			}
			require.NoError(t, err)
			_, err = f.writer.Write(ctx, event())
			require.NoError(t, err)
			go cancel()
			if err := tx.Rollback(); err != nil {
				require.ErrorIs(t, err, sql.ErrTxDone)
			}
			require.Eventually(t, func() bool { return len(f.rec.Outcomes()) == n+1 }, 20*time.Second, time.Millisecond)
			require.Equal(t, "rollback", f.rec.Outcomes()[n])
		}
		require.Zero(t, written(t, f.db))
	})
}

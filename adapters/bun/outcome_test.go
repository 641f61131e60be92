package outboxbun_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestLostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, direct *testdb.DB) {
		proxied, cuts := direct.CutCommits(t)
		f := newFixture(t, proxied.DB, direct.Kind)
		err := f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := f.a.Write(ctx, tx, adaptertest.Event())
			return err
		})
		require.Equal(t, int32(1), cuts.Load())
		require.Error(t, err, "bun's own")
		require.Equal(t, []string{"unknown"}, f.rec.Outcomes())
		require.Equal(t, 1, adaptertest.Written(t, direct.DB), "it was committed all the same")

		err = outbox.InTx(t.Context(), f.a, func(ctx context.Context) error {
			_, err := f.writer.Write(ctx, adaptertest.Event())
			return err
		})
		require.ErrorIs(t, err, outbox.ErrOutcomeUnknown, "the transactor can say so")
		require.Equal(t, []string{"unknown", "unknown"}, f.rec.Outcomes())
	})
}

// pgdriver says nothing when PostgreSQL answers COMMIT with ROLLBACK.
func TestSilentRollbackIsAnError(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Servers() {
		if target.Name != "postgres/pgdriver" {
			continue
		}
		f := newFixture(t, testdb.Open(t, target).DB, target.Kind)
		err := f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := f.a.Write(ctx, tx, adaptertest.Event())
			require.NoError(t, err)
			_, err = tx.Exec("INSERT INTO written (id) SELECT id FROM written")
			require.Error(t, err)
			return nil
		})
		if !errors.Is(err, sql.ErrTxDone) {
			require.ErrorContains(t, err, "current transaction is aborted")
		}
		require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
		return
	}
	t.Fatal("no pgdriver among the targets")
}

// A deadlock that nobody minds, seen with the context of the transaction, with a
// foreign one, and through a query builder.
func TestSwallowedDeadlock(t *testing.T) {
	t.Parallel()
	for name, exec := range map[string]func(ctx context.Context, tx bun.Tx, query string) error{
		"own context": func(ctx context.Context, tx bun.Tx, query string) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		},
		"foreign context": func(_ context.Context, tx bun.Tx, query string) error {
			_, err := tx.ExecContext(context.Background(), query)
			return err
		},
		"builder": func(ctx context.Context, tx bun.Tx, query string) error {
			_, err := tx.NewRaw(query).Exec(ctx)
			return err
		},
	} {
		for _, write := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "/then a write", false: "/then the commit"}[write], func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, testdb.Open(t, testdb.Main()[1]).DB, testdb.MySQL)
				var deadlock error
				err := f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
					_, err := f.a.Write(ctx, tx, adaptertest.Event())
					require.NoError(t, err)
					deadlock = adaptertest.Deadlock(t, f.pool, func(query string) error { return exec(ctx, tx, query) })
					if write {
						_, err = f.a.Write(ctx, tx, adaptertest.Event())
						require.ErrorIs(t, err, outbox.ErrNoTransaction)
					}
					return nil
				})
				require.True(t, sqlerr.IsDeadlock(deadlock), deadlock)
				if !errors.Is(err, sql.ErrTxDone) {
					require.ErrorContains(t, err, "rolled back before COMMIT")
				}
				if name == "foreign context" {
					require.ErrorContains(t, f.rec.LastCause(), "such as a deadlock")
				} else {
					require.True(t, sqlerr.IsDeadlock(f.rec.LastCause()), f.rec.LastCause())
				}
				require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
				require.Zero(t, adaptertest.Written(t, f.pool))
			})
		}
	}
}

// The deadlock of a statement that was not in the transaction, though it had its
// context, leaves it alone.
func TestDeadlockElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[1]).DB, testdb.MySQL)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := f.a.Write(ctx, tx, adaptertest.Event())
		require.NoError(t, err)
		other, err := f.plain.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		deadlock := adaptertest.Deadlock(t, f.pool, func(query string) error { _, err := other.Exec(query); return err })
		require.NoError(t, other.Rollback())
		// The hook sees it as a statement of the db.
		_, err = f.db.WithQueryHook(&otherHook{}).NewRaw("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock'").Exec(ctx)
		require.True(t, sqlerr.IsDeadlock(err) && sqlerr.IsDeadlock(deadlock), err)
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"commit", "commit"}, f.rec.Outcomes())
	require.Equal(t, 2, adaptertest.Written(t, f.pool))
}

// COMMIT of the embedded *sql.Tx is not seen. When the bun.Tx is ended as well,
// or is forgotten, the events are left to the poller.
func TestEndedBehindOurBack(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	require.NoError(t, tx.Tx.Commit())
	require.Error(t, tx.Commit())
	require.Equal(t, []string{"unknown"}, f.rec.Outcomes())

	func() {
		tx, err := f.db.BeginTx(context.Background(), nil) //nolint:usetesting // a context without an end.
		require.NoError(t, err)
		_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
		require.NoError(t, err)
		require.NoError(t, tx.Tx.Commit())
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(f.rec.Outcomes()) == 2
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, []string{"unknown", "unknown"}, f.rec.Outcomes())
	require.Equal(t, 2, adaptertest.Written(t, f.pool))
}

// A transaction that is open is found as long as database/sql keeps it.
func TestOpenTransactionIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	ctx, cancel := context.WithCancel(t.Context())
	func() {
		tx, err := f.db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
		require.NoError(t, err)
	}()
	for range 3 {
		runtime.GC()
	}
	require.Empty(t, f.rec.Outcomes())
	cancel()
	require.Eventually(t, func() bool { return len(f.rec.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
	require.ErrorIs(t, f.rec.LastCause(), context.Canceled)
}

// A statement COMMIT that fails has ended the transaction; the connection goes
// back before the callbacks run.
func TestFailingCommitStatement(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[0]).DB, testdb.Postgres)
	adaptertest.Exec(t, f.pool, "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
		"CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO child (id) VALUES (7)")
	require.NoError(t, err)
	_, err = tx.Exec("COMMIT")
	require.ErrorContains(t, err, "violates foreign key")
	require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
	require.Zero(t, f.pool.Stats().InUse)
	require.Error(t, tx.Commit())
	require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
}

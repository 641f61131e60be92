package sqltx_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// wrappedFixture is a database with a wrapped pool, an adapter, and a record of
// the outcomes.
type wrappedFixture struct {
	db  *sql.DB
	a   *sqltx.Adapter
	rec *record
}

func newWrappedFixture(t testing.TB, bare *testdb.DB) wrappedFixture {
	t.Helper()
	createTable(t, bare.DB)
	f := wrappedFixture{db: wrappedPool(t, bare), rec: &record{}}
	f.a = sqltx.New(f.db, newWriter(t, f.db, string(bare.Kind), f.rec.hook()))
	return f
}

func TestSavepointOlderThanTheFirstEventIsFollowed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, bare *testdb.DB) {
		f := newWrappedFixture(t, bare)
		tx := begin(t, f.db)
		exec(t, tx, "SAVEPOINT early")
		write(t, f.a, tx)
		exec(t, tx, "ROLLBACK TO SAVEPOINT early")
		f.rec.eventually(t, "rollback")
		write(t, f.a, tx)
		require.NoError(t, tx.Commit())
		f.rec.eventually(t, "rollback", "commit")
		require.Equal(t, 1, written(t, f.db))
	})
}

func TestPreparedSavepointsAreFollowed(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			f := newWrappedFixture(t, testdb.Open(t, target))
			tx := begin(t, f.db)
			write(t, f.a, tx)
			for _, query := range []string{"SAVEPOINT prepared", "ROLLBACK TO SAVEPOINT prepared"} {
				stmt, err := tx.PrepareContext(t.Context(), query)
				require.NoError(t, err)
				_, err = stmt.ExecContext(t.Context())
				require.NoError(t, err)
				require.NoError(t, stmt.Close())
				if query == "SAVEPOINT prepared" {
					write(t, f.a, tx)
				}
			}
			f.rec.eventually(t, "rollback")
			require.NoError(t, tx.Commit())
			f.rec.eventually(t, "rollback", "commit")
			require.Equal(t, 1, written(t, f.db))
		})
	}
}

// The rollback to a savepoint runs in the connection, which the callback would
// wait for.
func TestCallbackOfASavepointUsesTheTransaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, bare *testdb.DB) {
		f := newWrappedFixture(t, bare)
		f.db.SetMaxOpenConns(1)
		tx := begin(t, f.db)
		ctx, err := f.a.WithTx(t.Context(), tx)
		require.NoError(t, err)
		scope, ok := outbox.ScopeFromContext(ctx, f.db)
		require.True(t, ok)
		exec(t, tx, "SAVEPOINT point")
		used := make(chan error, 1)
		require.NoError(t, scope.AfterRollback(func(ctx context.Context, _ error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO written (id) VALUES ('from the callback')")
			used <- err
		}))
		exec(t, tx, "ROLLBACK TO SAVEPOINT point")
		require.NoError(t, <-used)
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, written(t, f.db))
	})
}

func TestPanicOfACallbackIsLogged(t *testing.T) {
	t.Parallel()
	for _, given := range []bool{true, false} {
		db := openWrapped(t, newRecording())
		var log bytes.Buffer
		rec := &record{}
		var opts []sqltx.Option
		if given {
			opts = append(opts, sqltx.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		}
		a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()), opts...)
		tx := begin(t, db)
		ctx, err := a.WithTx(t.Context(), tx)
		require.NoError(t, err)
		scope, _ := outbox.ScopeFromContext(ctx, db)
		require.NoError(t, scope.AfterCommit(func(context.Context) { panic("on purpose") }))
		write(t, a, tx)
		require.NoError(t, tx.Commit())
		rec.eventually(t, "commit") // which comes after it
		require.Equal(t, given, strings.Contains(log.String(), "on purpose"))
	}
}

func TestCallbackThatEndsItsGoroutineHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := openWrapped(t, newRecording())
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
	tx := begin(t, db)
	ctx, err := a.WithTx(t.Context(), tx)
	require.NoError(t, err)
	scope, _ := outbox.ScopeFromContext(ctx, db)
	require.NoError(t, scope.AfterCommit(nil))
	require.NoError(t, scope.AfterRollback(nil))
	require.NoError(t, scope.AfterCommit(func(context.Context) { runtime.Goexit() }))
	write(t, a, tx)
	require.NoError(t, tx.Commit())
	rec.eventually(t, "commit")
}

func TestConnectionThatGoesAwayLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(t *testing.T, c driver.Conn) error{
		"closed": func(_ *testing.T, c driver.Conn) error { return c.Close() },
		"reset": func(t *testing.T, c driver.Conn) error {
			return c.(driver.SessionResetter).ResetSession(t.Context())
		},
		"begun anew": func(t *testing.T, c driver.Conn) error {
			_, err := c.(driver.ConnBeginTx).BeginTx(t.Context(), driver.TxOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openWrapped(t, fixedConnector{conn: resettable{newRecording()}})
			rec := &record{}
			a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			var inner driver.Conn
			require.NoError(t, conn.Raw(func(c any) error { inner = c.(driver.Conn); return nil }))
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			write(t, a, tx)
			require.NoError(t, away(t, inner))
			rec.eventually(t, "unknown")
			require.NoError(t, tx.Rollback())
			rec.eventually(t, "unknown")
		})
	}
}

// resettable has the method that closing a session needs.
type resettable struct{ recording }

func (resettable) ResetSession(context.Context) error { return nil }

func TestLostAnswerToPlainCommitIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, direct *testdb.DB) {
		proxied, cuts := direct.CutCommits(t)
		createTable(t, direct.DB)
		db := wrappedPool(t, proxied)
		rec := &record{}
		a := sqltx.New(db, newWriter(t, db, string(direct.Kind), rec.hook()))
		tx := begin(t, db)
		write(t, a, tx)
		err := tx.Commit()
		require.Equal(t, int32(1), cuts.Load())
		require.Error(t, err)
		rec.eventually(t, "unknown")
		require.Equal(t, 1, written(t, direct.DB), "it was committed all the same")
	})
}

// What the outbox has no part in goes as it would without it.
func TestTransactionWithoutEventsIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := openWrapped(t, newRecording())
	a := sqltx.New(db, newWriter(t, db, "sqlite"))
	tx := begin(t, db)
	exec(t, tx, "ROLLBACK")
	require.NoError(t, tx.Commit(), "as the driver answers")

	tx = begin(t, db)
	write(t, a, tx)
	exec(t, tx, "ROLLBACK")
	require.ErrorContains(t, tx.Commit(), "rolled back before COMMIT")
}

// The store's INSERT would commit by itself.
func TestScopeOfATransactionThatWasEndedByHandRunsNothing(t *testing.T) {
	t.Parallel()
	inner := newRecording()
	db := openWrapped(t, inner)
	a := sqltx.New(db, newWriter(t, db, "sqlite"))
	tx := begin(t, db)
	ctx, err := a.WithTx(t.Context(), tx)
	require.NoError(t, err)
	scope, _ := outbox.ScopeFromContext(ctx, db)
	_, err = scope.ExecContext(t.Context(), "INSERT")
	require.NoError(t, err)
	exec(t, tx, "ROLLBACK")
	_, err = scope.ExecContext(t.Context(), "INSERT")
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.Equal(t, []string{"INSERT", "ROLLBACK"}, *inner.sent)
}

var errRefused = errors.New("no transactions today")

// refusing cannot begin.
type refusing struct{ recording }

func (refusing) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return nil, errRefused
}

func TestFailedBeginLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	inner := newRecording()
	db := openWrapped(t, fixedConnector{conn: refusing{inner}})
	_, err := db.BeginTx(t.Context(), nil)
	require.ErrorIs(t, err, errRefused)
	exec(t, noTx{db}, "SELECT 1")
	require.Equal(t, []string{"SELECT 1"}, *inner.sent)
}

// noTx has the methods of a transaction and is none.
type noTx struct{ *sql.DB }

func (noTx) Commit() error   { return nil }
func (noTx) Rollback() error { return nil }

func TestPoolThatPosesAsATransactionIsRefused(t *testing.T) {
	t.Parallel()
	db := openWrapped(t, newRecording())
	a := sqltx.New(db, newWriter(t, db, "sqlite"), sqltx.AllowUnmanaged())
	require.NoError(t, begin(t, db).Commit()) // the connection has forgotten it
	_, err := a.Write(t.Context(), noTx{db}, event())
	require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
}

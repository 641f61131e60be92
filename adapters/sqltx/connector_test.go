package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTransactionIsFoundWithoutARoundTrip(t *testing.T) {
	t.Parallel()
	inner := newRecording()
	db := open(t, inner)
	f := newFixture(t, db, "sqlite")
	tx := begin(t, db)
	write(t, f.a, tx)
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"INSERT INTO written (id) VALUES (?)"}, inner.all())
	f.rec.Eventually(t, "commit")

	_, err := f.a.Write(t.Context(), tx, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.Len(t, inner.all(), 1)
	exec(t, db, "SELECT 1") // the user's own
	require.Len(t, inner.all(), 2)
}

func TestWrappedConnectorIsNotWrappedAgain(t *testing.T) {
	t.Parallel()
	once := sqltx.WrapConnector(nothing{})
	require.Same(t, once, sqltx.WrapConnector(once))
	require.Equal(t, nothing{}, once.Driver())
}

func TestNilConnectorFailsToConnect(t *testing.T) {
	t.Parallel()
	for _, inner := range []driver.Connector{nil, (*closingConnector)(nil)} {
		db := open(t, inner)
		require.EqualError(t, db.PingContext(t.Context()), "outbox: sqltx.WrapConnector connector is nil")
		require.Nil(t, db.Driver())
	}
}

// old is a connection of a driver from before contexts.
type old struct{ driver.Conn }

func TestDriverWithoutContextsIsRefused(t *testing.T) {
	t.Parallel()
	inner := fixedConnector{conn: old{nothing{}}}
	require.ErrorContains(t, open(t, inner).PingContext(t.Context()), "its sqltx_test.old lacks one of ExecContext,")
	base, db := lending(t, inner, 1)
	require.ErrorContains(t, db.PingContext(t.Context()), "sqltx_test.old")
	require.Zero(t, base.Stats().InUse, "it was given back")
}

type closingConnector struct {
	nothing
	closed *int
}

func (c *closingConnector) Close() error {
	if c != nil {
		*c.closed++
	}
	return nil
}

func TestConnectorIsClosedWithThePool(t *testing.T) {
	t.Parallel()
	closed := 0
	require.NoError(t, sqltx.OpenDB(&closingConnector{closed: &closed}).Close())
	require.Equal(t, 1, closed)
}

// hiding is a wrapper around ours.
type hiding struct{ driver.Connector }

// A transaction of another followed pool has a scope to offer, too.
func TestTransactionOfAnotherPoolIsRefused(t *testing.T) {
	t.Parallel()
	here, there := open(t, newRecording()), open(t, newRecording())
	for _, opts := range [][]sqltx.Option{nil, {sqltx.AllowUnmanaged()}} {
		a := newFixture(t, here, "sqlite", opts...).a
		for _, tx := range []sqltx.AnyTx{begin(t, there), &generatedTx{begin(t, there)}} {
			_, err := a.Write(t.Context(), tx, event())
			require.ErrorIs(t, err, outbox.ErrForeignTransaction)
		}
	}
}

func TestRawConnectionUnwrapsToTheDrivers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, plain *testdb.DB) {
		typeOf := func(db *sql.DB, unwrap bool) (typ reflect.Type) {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			require.NoError(t, conn.Raw(func(c any) error {
				if unwrap {
					c = c.(interface{ Unwrap() driver.Conn }).Unwrap()
				}
				typ = reflect.TypeOf(c)
				return nil
			}))
			return typ
		}
		want := typeOf(plain.DB, false)
		require.Equal(t, want, typeOf(followedPool(t, plain), true))
		require.Equal(t, want, typeOf(watched(t, plain), true))
		require.IsType(t, plain.Driver(), followedPool(t, plain).Driver())
	})
}

// What a driver does through statements of its own works as before.
func TestCopyOfPqWorksInAFollowedTransaction(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		if target.Name != "postgres/pq" {
			continue
		}
		f := followed(t, testdb.Open(t, target))
		tx := begin(t, f.db)
		stmt, err := tx.PrepareContext(t.Context(), "COPY written (id) FROM STDIN")
		require.NoError(t, err)
		for i := range 3 {
			_, err = stmt.ExecContext(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
		}
		_, err = stmt.ExecContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
		write(t, f.a, tx)
		require.NoError(t, tx.Commit())
		f.rec.Eventually(t, "commit")
		require.Equal(t, 4, written(t, f.db))
	}
}

func TestSavepointOlderThanTheFirstEventIsFollowed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, plain *testdb.DB) {
		f := followed(t, plain)
		tx := begin(t, f.db)
		exec(t, tx, "SAVEPOINT early")
		write(t, f.a, tx)
		exec(t, tx, "ROLLBACK TO SAVEPOINT early")
		f.rec.Eventually(t, "rollback")
		write(t, f.a, tx)
		require.NoError(t, tx.Commit())
		f.rec.Eventually(t, "rollback", "commit")
		require.Equal(t, 1, written(t, f.db))
	})
}

func TestPreparedSavepointsAreFollowed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, plain *testdb.DB) {
		f := followed(t, plain)
		tx := begin(t, f.db)
		write(t, f.a, tx)
		if plain.Kind == testdb.MySQL && !plain.IsMariaDB(t) { // it prepares no statements for savepoints
			_, err := tx.PrepareContext(t.Context(), "SAVEPOINT prepared")
			require.True(t, sqlerr.HasNumber(err, 1295), "%v", err)
			require.NoError(t, tx.Commit())
			f.rec.Eventually(t, "commit")
			require.Equal(t, 1, written(t, f.db))
			return
		}
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
		f.rec.Eventually(t, "rollback")
		require.NoError(t, tx.Commit())
		f.rec.Eventually(t, "rollback", "commit")
		require.Equal(t, 1, written(t, f.db))
	})
}

// The rollback to a savepoint runs in the connection for which the callback would
// wait.
func TestCallbackOfASavepointUsesTheTransaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, plain *testdb.DB) {
		f := followed(t, plain)
		f.db.SetMaxOpenConns(1)
		tx := begin(t, f.db)
		exec(t, tx, "SAVEPOINT point")
		used := make(chan error, 1)
		require.NoError(t, f.scopeOf(t, tx).AfterRollback(func(ctx context.Context, _ error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO written (id) VALUES ('from the callback')")
			used <- err
		}))
		exec(t, tx, "ROLLBACK TO SAVEPOINT point")
		require.NoError(t, <-used)
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, written(t, f.db))
	})
}

func TestCallbackThatEndsItsGoroutineHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t, open(t, newRecording()), "sqlite")
	tx := begin(t, f.db)
	scope := f.scopeOf(t, tx)
	require.NoError(t, scope.AfterCommit(nil))
	require.NoError(t, scope.AfterRollback(nil))
	require.NoError(t, scope.AtCommit(nil))
	require.NoError(t, scope.AfterCommit(func(context.Context) { runtime.Goexit() }))
	write(t, f.a, tx)
	require.NoError(t, tx.Commit())
	f.rec.Eventually(t, "commit")
}

func TestConnectionThatIsClosedLeavesTheEndUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, open(t, newRecording()), "sqlite")
	conn, err := f.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	var inner driver.Conn
	require.NoError(t, conn.Raw(func(c any) error { inner = c.(driver.Conn); return nil }))
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	write(t, f.a, tx)
	require.NoError(t, inner.Close())
	f.rec.Eventually(t, "unknown")
	_ = tx.Rollback()
	f.rec.Eventually(t, "unknown")
}

// Transactions without events go as they would on a plain pool.
func TestTransactionWithoutEventsIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, open(t, newRecording()), "sqlite")
	tx := begin(t, f.db)
	exec(t, tx, "ROLLBACK")
	require.NoError(t, tx.Commit(), "as the driver answers")

	tx = begin(t, f.db)
	write(t, f.a, tx)
	exec(t, tx, "ROLLBACK")
	require.ErrorContains(t, tx.Commit(), "rolled back before COMMIT")
}

// The store's INSERT would commit by itself.
func TestScopeOfATransactionThatWasEndedByHandRunsNothing(t *testing.T) {
	t.Parallel()
	inner := newRecording()
	f := newFixture(t, open(t, inner), "sqlite")
	tx := begin(t, f.db)
	scope := f.scopeOf(t, tx)
	exec(t, scope, "INSERT")
	exec(t, tx, "ROLLBACK")
	_, err := scope.ExecContext(t.Context(), "INSERT")
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.Equal(t, []string{"INSERT", "ROLLBACK"}, inner.all())
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
	db := open(t, fixedConnector{conn: refusing{inner}})
	_, err := db.BeginTx(t.Context(), nil)
	require.ErrorIs(t, err, errRefused)
	exec(t, db, "SELECT 1")
	require.Equal(t, []string{"SELECT 1"}, inner.all())
}

// noTx has the methods of a transaction and is none.
type noTx struct{ *sql.DB }

func (noTx) Commit() error   { return nil }
func (noTx) Rollback() error { return nil }

func TestPoolThatPosesAsATransactionIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, open(t, newRecording()), "sqlite")
	require.NoError(t, begin(t, f.db).Commit()) // the connection has forgotten it
	_, err := f.a.Write(t.Context(), noTx{f.db}, event())
	require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
}

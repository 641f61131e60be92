package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// lending is a pool that a followed one borrows from.
func lending(t testing.TB, inner driver.Connector, limit int) (base, db *sql.DB) {
	t.Helper()
	base = sql.OpenDB(inner)
	base.SetMaxOpenConns(limit)
	db = sqltx.Watch(base)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.NoError(t, base.PingContext(context.Background()), "it stays open")
		require.Zero(t, base.Stats().InUse, "everything came back")
		require.NoError(t, base.Close())
	})
	return base, db
}

func TestWatchOfAFollowedPoolIsThatPool(t *testing.T) {
	t.Parallel()
	require.Nil(t, sqltx.Watch(nil))
	db := open(t, newRecording())
	require.Same(t, db, sqltx.Watch(db))
	_, borrowing := lending(t, newRecording(), 0)
	require.Same(t, borrowing, sqltx.Watch(borrowing))
}

func TestTransactionOfTheBasePoolIsUnmanaged(t *testing.T) {
	t.Parallel()
	base, db := lending(t, newRecording(), 0)
	f := newFixture(t, db, "sqlite")
	tx := begin(t, base)
	_, err := f.a.Write(t.Context(), tx, event())
	require.ErrorContains(t, err, "sqltx.Watch(pool)")
	require.NoError(t, tx.Rollback())
	tx = begin(t, db)
	write(t, f.a, tx)
	require.NoError(t, tx.Commit())
	f.rec.Eventually(t, "commit")
}

// Both pools share one connection. An idle one that the followed pool kept would
// hold up the other for a second or more each time.
func TestWatchDoesNotStarveItsBase(t *testing.T) {
	t.Parallel()
	base, db := lending(t, newRecording(), 1)
	began := time.Now()
	for range 50 {
		exec(t, db, "INSERT")
		exec(t, base, "INSERT")
	}
	require.Less(t, time.Since(began), 30*time.Second, "not a second for each of 100 calls")
}

func TestManyWaitForTheConnectionsOfTheBase(t *testing.T) {
	t.Parallel()
	base, db := lending(t, newRecording(), 2)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range 8 {
		pool := db
		if i%4 == 0 {
			pool = base
		}
		wg.Go(func() {
			for range 50 {
				tx, err := pool.BeginTx(t.Context(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = tx.ExecContext(t.Context(), "INSERT")
				_ = tx.Commit()
			}
		})
	}
	wg.Wait()
	require.Less(t, time.Since(began), 10*time.Second)
	require.LessOrEqual(t, base.Stats().OpenConnections, 2)
}

func TestIdleConnectionsGoBackSoon(t *testing.T) {
	t.Parallel()
	base, db := lending(t, newRecording(), 0)
	exec(t, db, "INSERT")
	require.Equal(t, 1, base.Stats().InUse, "kept for the next statement")
	require.Eventually(t, func() bool { return base.Stats().InUse == 0 }, 20*time.Second, 10*time.Millisecond)
}

// breaking reports a broken connection once.
type breaking struct {
	recording
	opened *int
}

func (b breaking) Connect(context.Context) (driver.Conn, error) {
	*b.opened++
	return b, nil
}

func (b breaking) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == "BREAK" {
		return nil, driver.ErrBadConn
	}
	return b.recording.ExecContext(ctx, query, args)
}

func TestBrokenConnectionIsDroppedByTheBase(t *testing.T) {
	t.Parallel()
	inner := breaking{newRecording(), new(int)}
	base, db := lending(t, inner, 1)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "BREAK")
	require.ErrorIs(t, err, driver.ErrBadConn)
	_ = tx.Rollback()
	require.Eventually(t, func() bool { return base.Stats().OpenConnections == 0 }, 20*time.Second, time.Millisecond)
	exec(t, base, "INSERT")
	require.Equal(t, 2, *inner.opened)
}

func TestContextEndsTheWaitForTheBase(t *testing.T) {
	t.Parallel()
	base, db := lending(t, newRecording(), 1)
	held := begin(t, base)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := db.BeginTx(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, held.Rollback())
}

package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// countedConn is a driver that counts its open connections, and those that it opened.
type countedConn struct {
	recording
	open, opened *atomic.Int32
}

func newCountedConn() countedConn {
	return countedConn{newRecording(), new(atomic.Int32), new(atomic.Int32)}
}

// countedConnector has no Close, which would be called with the pool's.
type countedConnector struct{ conn countedConn }

func (c countedConnector) Driver() driver.Driver { return c.conn }

func (c countedConnector) Connect(context.Context) (driver.Conn, error) {
	c.conn.open.Add(1)
	c.conn.opened.Add(1)
	return c.conn, nil
}

func (c countedConn) Close() error {
	c.open.Add(-1)
	return nil
}

// use has n connections of a pool in use at once.
func use(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
	}
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	require.Nil(t, sqltx.TakeOver(nil))
	for name, set := range map[string]func(base *sql.DB, db func() *sql.DB){
		"set before": func(base *sql.DB, db func() *sql.DB) { settings(base); db() },
		"set after":  func(_ *sql.DB, db func() *sql.DB) { settings(db()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newCountedConn()
				base := sql.OpenDB(countedConnector{inner})
				require.NoError(t, base.PingContext(t.Context()))
				var db *sql.DB
				set(base, func() *sql.DB { db = sqltx.TakeOver(base); return db })
				require.Same(t, db, sqltx.TakeOver(db))

				use(t, db, 6)
				require.EqualValues(t, 6, inner.opened.Load(), "the base's own is the first")
				require.EqualValues(t, 4, inner.open.Load(), "SetMaxIdleConns")
				require.Equal(t, 6, db.Stats().MaxOpenConnections)
				time.Sleep(70 * time.Second)
				require.Zero(t, inner.open.Load(), "SetConnMaxIdleTime")

				use(t, db, 1)
				opened := inner.opened.Load()
				for range 10 {
					time.Sleep(30 * time.Second)
					use(t, db, 1)
				}
				require.Greater(t, inner.opened.Load(), opened, "SetConnMaxLifetime")

				held := begin(t, db)
				require.NoError(t, db.Close())
				_ = held.Rollback()
				require.Zero(t, inner.open.Load(), "Close")
				require.ErrorContains(t, base.PingContext(t.Context()), "database is closed")
			})
		})
	}
}

func settings(db *sql.DB) {
	db.SetMaxOpenConns(6)
	db.SetMaxIdleConns(4)
	db.SetConnMaxIdleTime(time.Minute)
	db.SetConnMaxLifetime(2 * time.Minute)
}

// Without settings they are database/sql's.
func TestTakeOverOfAPoolWithoutSettings(t *testing.T) {
	t.Parallel()
	for _, idle := range []int{2, 0} {
		inner := newCountedConn()
		base := sql.OpenDB(countedConnector{inner})
		if idle == 0 {
			base.SetMaxIdleConns(0)
		}
		db := sqltx.TakeOver(base)
		use(t, db, 4)
		require.EqualValues(t, idle, inner.open.Load())
		require.NoError(t, db.Close())
	}
}

// The lifetime of the base's connections holds, however busy the followed pool is.
func TestWatchKeepsTheLifetimeOfItsBase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newCountedConn()
		base, db := lending(t, countedConnector{inner}, 0)
		base.SetConnMaxLifetime(time.Minute)
		for range 200 {
			use(t, db, 1)
			time.Sleep(500 * time.Millisecond)
		}
		require.EqualValues(t, 2, inner.opened.Load())
	})
}

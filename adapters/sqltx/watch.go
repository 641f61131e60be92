package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"sync/atomic"
	"time"
)

// lendTime bounds how long an idle connection is kept from the pool it was borrowed from, and
// useTime how long a busy connection is kept: the lending pool looks at the age of a connection
// when it comes back.
const (
	lendTime = time.Second
	useTime  = 10 * time.Second
)

// Watch returns a followed pool that borrows its connections from db, for a program that does not
// open the pool itself:
//
//	db := bun.NewDB(sqltx.Watch(pool), pgdialect.New())
//	db, err := gorm.Open(postgres.New(postgres.Config{Conn: sqltx.Watch(pool)}))
//
// Begin all transactions with events on the followed pool, and give the followed pool to the
// outbox. The settings of db hold for both pools: SetMaxOpenConns, SetMaxIdleConns,
// SetConnMaxLifetime and SetConnMaxIdleTime, the last two ten seconds late. The same methods of the
// followed pool only say how long it may keep borrowed connections, and close nothing; leave
// SetConnMaxIdleTime as it is. An idle connection goes back to db after a second or two, and at
// once while db has no free connection. Close of the followed pool gives all borrowed connections
// back, ends a goroutine, and leaves db open: call Close, also in a decorator of fx. If Close
// should close the connections, see [TakeOver]. A db that is already followed, or nil, is returned
// as it is.
//
// Where you can, open the pool with [Open] instead: this costs less, and a prepared statement stays
// on its connection.
func Watch(db *sql.DB) *sql.DB {
	if db == nil || connectorOf(db) != nil {
		return db
	}
	followed := OpenDB(&borrower{pool: db})
	followed.SetConnMaxIdleTime(lendTime)
	return followed
}

// TakeOver is [Watch] for a pool that no other code uses from now on, such as a pool that a
// framework has opened. The returned pool has db's settings and db's connections. All methods of
// the returned pool work as usual: its settings hold for the connections, and Close closes the
// connections, and db. Settings of db that are changed later have no effect.
func TakeOver(db *sql.DB) *sql.DB {
	if db == nil || connectorOf(db) != nil {
		return db
	}
	followed := OpenDB(&borrower{pool: db, owns: true})
	followed.SetMaxOpenConns(db.Stats().MaxOpenConnections)
	followed.SetMaxIdleConns(maxIdle(setting(db, "maxIdleCount")))
	followed.SetConnMaxLifetime(time.Duration(setting(db, "maxLifetime")))
	followed.SetConnMaxIdleTime(time.Duration(setting(db, "maxIdleTime")))
	db.SetMaxOpenConns(0)
	return followed
}

// setting reads a setting of a pool; the pool has no method for this. TestTakeOver fails if
// database/sql renames the field.
func setting(db *sql.DB, field string) int64 {
	if value := reflect.ValueOf(db).Elem().FieldByName(field); value.IsValid() {
		return value.Int()
	}
	return 0
}

// maxIdle returns the argument that SetMaxIdleConns was called with, by the field of [sql.DB]: zero
// stands for the default.
func maxIdle(field int64) int {
	const byDefault = 2
	if field == 0 {
		return byDefault
	}
	return int(field)
}

// borrower is the connector of a pool made by [Watch] or [TakeOver].
type borrower struct {
	pool *sql.DB
	// owns: returned connections are closed, and the pool is closed with the followed pool.
	owns bool
	// waiting counts the calls of Connect that wait for a connection.
	waiting atomic.Int32
}

func (b *borrower) Driver() driver.Driver { return b.pool.Driver() }

func (b *borrower) Connect(ctx context.Context) (driver.Conn, error) {
	b.waiting.Add(1)
	held, err := b.pool.Conn(ctx)
	b.waiting.Add(-1)
	if err != nil {
		return nil, err
	}
	l := &loan{held: held, from: b, since: time.Now()}
	if err := held.Raw(func(inner any) error {
		l.Conn = inner.(driver.Conn)
		return nil
	}); err != nil {
		_ = held.Close()
		return nil, err
	}
	return l, nil
}

// Close is called when the followed pool is closed.
func (b *borrower) Close() error {
	if b.owns {
		return b.pool.Close()
	}
	return nil
}

// exhausted reports whether a call waits for a connection, or the next call would.
func (b *borrower) exhausted() bool {
	if b.waiting.Load() > 0 {
		return true
	}
	stats := b.pool.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

// loan is a borrowed connection.
type loan struct {
	driver.Conn
	held  *sql.Conn
	from  *borrower
	since time.Time
}

// due reports whether the connection has to go back.
func (l *loan) due() bool {
	return !l.from.owns && (time.Since(l.since) > useTime || l.from.exhausted())
}

// Close gives the connection back.
func (l *loan) Close() error { return l.giveBack(false) }

// giveBack returns the connection to the lending pool, which drops a broken connection.
func (l *loan) giveBack(broken bool) error {
	broken = broken || l.from.owns
	if broken {
		_ = l.held.Raw(func(any) error { return driver.ErrBadConn })
	}
	err := l.held.Close()
	if broken {
		return nil // Raw has closed it
	}
	return err
}

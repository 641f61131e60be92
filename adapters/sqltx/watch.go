package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"time"
)

// lendTime bounds how long an idle connection is kept from the pool it was
// borrowed from.
const lendTime = time.Second

// Watch returns a followed pool that borrows its connections from db, for a
// program that does not open the pool itself:
//
//	fx.Decorate(sqltx.Watch)
//	db := bun.NewDB(sqltx.Watch(pool), pgdialect.New())
//	db, err := gorm.Open(postgres.New(postgres.Config{Conn: sqltx.Watch(pool)}))
//
// Begin all transactions with events on what it returns, and give that to the
// outbox. The limits of db bound both pools. An idle connection goes back to db
// after a second or two, and at once while db has no free one. Close leaves db
// open. A db that is followed already, or nil, is returned as it is.
//
// Where you can, open the pool with [Open] instead: it costs less, and a prepared
// statement stays on its connection.
func Watch(db *sql.DB) *sql.DB {
	if db == nil || connectorOf(db) != nil {
		return db
	}
	followed := OpenDB(&borrower{pool: db})
	followed.SetConnMaxIdleTime(lendTime)
	return followed
}

// borrower is the connector of a pool made by [Watch].
type borrower struct {
	pool *sql.DB
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
	l := &loan{held: held, from: b}
	if err := held.Raw(func(inner any) error {
		l.Conn = inner.(driver.Conn)
		return nil
	}); err != nil {
		_ = held.Close()
		return nil, err
	}
	return l, nil
}

// exhausted reports whether somebody waits, or the next one would.
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
	held *sql.Conn
	from *borrower
}

// Close gives the connection back.
func (l *loan) Close() error { return l.giveBack(false) }

// giveBack returns the connection to its pool, which drops a broken one.
func (l *loan) giveBack(broken bool) error {
	if broken {
		_ = l.held.Raw(func(any) error { return driver.ErrBadConn })
	}
	err := l.held.Close()
	if broken {
		return nil // Raw has closed it
	}
	return err
}

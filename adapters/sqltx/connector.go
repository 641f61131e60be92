package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// WrapConnector makes the connections of a pool followed, for code that calls
// [sql.OpenDB] itself:
//
//	db := otelsql.OpenDB(sqltx.WrapConnector(connector))
//
// A wrapper around the returned connector, as here, has to pass on the contexts that it gets, or
// contexts made of them; the outbox's statements are then not kept prepared. Below other wrappers
// everything works as without them.
//
// The errors of the driver stay as they are, except for transactions with events: COMMIT is refused
// when the database has undone the transaction before, and a COMMIT of unknown outcome is
// [outbox.ErrOutcomeUnknown] as well. Functions given to [sql.Conn.Raw] get the wrapped connection.
// The method Unwrap() driver.Conn of this connection returns the driver's own connection.
func WrapConnector(inner driver.Connector) driver.Connector {
	if c, ok := inner.(*connector); ok {
		return c
	}
	c := &connector{inner: inner, open: make(map[*sql.Tx]*transaction)}
	if !nilness.IsNil(inner) {
		c.silent = silentDriver(inner)
		c.learn(driverDialect(inner))
	}
	return c
}

// connector makes followed connections.
type connector struct {
	inner  driver.Connector
	silent bool // see silentDriver
	known  atomic.Pointer[string]

	// open has the transactions that an adapter has asked for, so that further writes need not ask
	// again.
	mu   sync.RWMutex
	open map[*sql.Tx]*transaction
}

// Connect wraps a connection of the inner connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if nilness.IsNil(c.inner) {
		return nil, &outbox.FieldError{Field: "sqltx.WrapConnector connector", Problem: "is nil"}
	}
	if q := questionOf(ctx); q != nil && q.connector == nil {
		q.pool = c
		return nil, errAsked
	}
	inner, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newConn(c, inner)
}

var errAsked = errors.New("sqltx: the connector was asked, and does not connect")

// Driver returns the driver of the inner connector: code asserts its type.
func (c *connector) Driver() driver.Driver {
	if nilness.IsNil(c.inner) {
		return nil
	}
	return c.inner.Driver()
}

// Close closes the inner connector when the inner connector has a method for that.
func (c *connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok && !nilness.IsNil(c.inner) {
		return closer.Close()
	}
	return nil
}

// dialect returns the dialect of the database. It is empty for a driver within another wrapper
// until [New] has learned the dialect from the store.
func (c *connector) dialect() string {
	if known := c.known.Load(); known != nil {
		return *known
	}
	return ""
}

func (c *connector) learn(dialect string) {
	if dialect != "" {
		c.known.CompareAndSwap(nil, &dialect)
	}
}

func (c *connector) find(tx *sql.Tx) (*transaction, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.open[tx]
	return found, ok
}

func (c *connector) opened(t *transaction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[t.above.tx] = t
}

func (c *connector) ended(t *transaction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, t.above.tx)
}

// connectorOf returns the connector of a followed pool, or nil. A pool does not return its
// connector, so connectorOf reads the field of [sql.DB]. Without this field no pool would count as
// followed, and every test of this package would fail.
func connectorOf(pool *sql.DB) *connector {
	if pool == nil {
		return nil
	}
	field := reflect.ValueOf(pool).Elem().FieldByName("connector")
	if !field.IsValid() || field.Kind() != reflect.Interface || field.IsNil() || field.Elem().Type() != reflect.TypeFor[*connector]() {
		return nil
	}
	return (*connector)(field.Elem().UnsafePointer())
}

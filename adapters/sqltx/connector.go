package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"reflect"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// WrapConnector lets the adapter follow transactions that it did not begin, for
// code that knows only database/sql: what sqlc and ent generate, and code older
// than the outbox. Open the pool with it, and hand the transactions of
// [sql.DB.BeginTx] to [Adapter.Write] as they are:
//
//	db := sql.OpenDB(sqltx.WrapConnector(connector))
//	a := sqltx.New(db, ob.Writer())
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	_, err = a.Write(ctx, tx, orderPlaced)
//	err = tx.Commit()
//
// It sees everything that goes to the driver: prepared statements, the rows of
// queries, savepoints, statements that end the transaction. It has two limits.
// Callbacks run on a goroutine of their own soon after COMMIT or ROLLBACK, and
// not before it returns, because database/sql still holds the connection then.
// And [sql.Conn.Raw] hands out the wrapped connection: the driver's own is what
// its method Unwrap() driver.Conn returns.
//
// Among several wrappers it has to be the outermost. A connector that is wrapped
// already is returned as it is. The errors that the driver returns stay as they
// are; only a COMMIT of a transaction that the outbox wrote in is refused when
// the database has undone that transaction before.
func WrapConnector(inner driver.Connector) driver.Connector {
	if c, ok := inner.(*connector); ok {
		return c
	}
	c := &connector{inner: inner, id: connectors.Add(1)}
	if !isNil(inner) {
		c.learn(driverDialect(inner))
	}
	return c
}

// connectors counts them, for connector.id.
var connectors atomic.Uint64

// connector is what [WrapConnector] makes.
type connector struct {
	inner driver.Connector
	id    uint64 // never zero; see poolConnector
	known atomic.Pointer[string]
}

// Connect wraps the connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if isNil(c.inner) {
		return nil, &outbox.FieldError{Field: "sqltx.WrapConnector connector", Problem: "is nil"}
	}
	inner, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return wrapConn(c, inner), nil
}

// Driver is the inner one: there is code that asserts its type.
func (c *connector) Driver() driver.Driver {
	if isNil(c.inner) {
		return nil
	}
	return c.inner.Driver()
}

// Close closes the inner connector, if that can be.
func (c *connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// dialect is the database's, or empty as long as nobody has told: a driver
// within another wrapper does not.
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

// needsProbe reports whether the driver keeps quiet when PostgreSQL answers
// COMMIT with ROLLBACK.
func (c *connector) needsProbe(dialect string) bool { return txscope.NeedsProbe(c.inner, dialect) }

// poolConnector is the id of the pool's connector, and zero when that is not a
// wrapped one. A connection does not tell which pool it belongs to, and a pool
// does not tell its connector, so this reads the field of [sql.DB]. Were it to
// disappear, plain transactions would be refused, and a test would say so.
func poolConnector(pool any) uint64 {
	db, ok := pool.(*sql.DB)
	if !ok || db == nil {
		return 0
	}
	field := reflect.ValueOf(db).Elem().FieldByName("connector")
	if !field.IsValid() || field.Kind() != reflect.Interface || field.Elem().Type() != reflect.TypeFor[*connector]() {
		return 0
	}
	return field.Elem().Elem().FieldByName("id").Uint()
}

package sqltx_test

import (
	"context"
	"database/sql/driver"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
)

// database/sql asks which of these methods a connection has, and behaves
// otherwise without them.
func TestConnectionsKeepTheirOptionalMethods(t *testing.T) {
	t.Parallel()
	telling := []reflect.Type{
		reflect.TypeFor[driver.ExecerContext](), reflect.TypeFor[driver.QueryerContext](),
		reflect.TypeFor[driver.SessionResetter](), reflect.TypeFor[driver.Validator](),
	}
	check := func(t *testing.T, inner, wrapped driver.Conn) {
		t.Helper()
		for _, method := range telling {
			require.Equal(t, reflect.TypeOf(inner).Implements(method), reflect.TypeOf(wrapped).Implements(method), "%T: %v", inner, method)
		}
		require.Equal(t, inner, wrapped.(interface{ Unwrap() driver.Conn }).Unwrap())
	}
	for _, inner := range shapes() {
		wrapped, err := sqltx.WrapConnector(fixedConnector{conn: inner}).Connect(t.Context())
		require.NoError(t, err)
		check(t, inner, wrapped)
	}
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		inner, err := connectorOf(t, db).Connect(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, inner.Close()) }()
		wrapped, err := sqltx.WrapConnector(fixedConnector{conn: inner}).Connect(t.Context())
		require.NoError(t, err)
		check(t, inner, wrapped)
	})
}

// fixedConnector has one connection.
type fixedConnector struct {
	nothing
	conn driver.Conn
}

func (c fixedConnector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }

type (
	bareConn struct{ driver.Conn }
	execs    struct{ driver.ExecerContext }
	queries  struct{ driver.QueryerContext }
	resets   struct{ driver.SessionResetter }
	valid    struct{ driver.Validator }
)

// shapes is a connection for each set of the optional methods.
func shapes() []driver.Conn {
	return []driver.Conn{
		bareConn{},
		struct {
			bareConn
			execs
		}{},
		struct {
			bareConn
			queries
		}{},
		struct {
			bareConn
			execs
			queries
		}{},
		struct {
			bareConn
			resets
		}{},
		struct {
			bareConn
			resets
			execs
		}{},
		struct {
			bareConn
			resets
			queries
		}{},
		struct {
			bareConn
			resets
			execs
			queries
		}{},
		struct {
			bareConn
			valid
		}{},
		struct {
			bareConn
			valid
			execs
		}{},
		struct {
			bareConn
			valid
			queries
		}{},
		struct {
			bareConn
			valid
			execs
			queries
		}{},
		struct {
			bareConn
			resets
			valid
		}{},
		struct {
			bareConn
			resets
			valid
			execs
		}{},
		struct {
			bareConn
			resets
			valid
			queries
		}{},
		struct {
			bareConn
			resets
			valid
			execs
			queries
		}{},
	}
}

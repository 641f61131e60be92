package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// Open is [sql.Open] for a followed pool. The error quotes no address: a driver may quote an
// address that it cannot parse, with the password in it.
func Open(driverName, dsn string) (*sql.DB, error) {
	plain, err := sql.Open(driverName, dsn)
	if err != nil {
		return nil, sqlerr.WithoutAddress(err, dsn)
	}
	drv := plain.Driver()
	if err := plain.Close(); err != nil {
		return nil, err
	}
	opener, ok := drv.(driver.DriverContext)
	if !ok {
		return OpenDB(dsnConnector{drv, dsn}), nil
	}
	connector, err := opener.OpenConnector(dsn)
	if err != nil {
		return nil, sqlerr.WithoutAddress(err, dsn)
	}
	return OpenDB(connector), nil
}

// OpenDB is [sql.OpenDB] for a followed pool.
func OpenDB(connector driver.Connector) *sql.DB {
	return sql.OpenDB(WrapConnector(connector))
}

// dsnConnector is the connector of a driver that has only Open.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Driver() driver.Driver { return c.driver }

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	return conn, sqlerr.WithoutAddress(err, c.dsn)
}

package sqltx

import (
	"database/sql/driver"
	"reflect"
	"strings"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// dialectOf asks the store for the dialect of the database. For a store that does not say, the
// driver decides.
func dialectOf(c *connector, store outbox.Store) string {
	if named, ok := store.(interface{ Dialect() string }); ok {
		return named.Dialect()
	}
	return c.dialect()
}

// driverDialect returns the dialect of the connector's driver, or "".
func driverDialect(c driver.Connector) string {
	path := driverPackage(c)
	for _, known := range []struct{ part, dialect string }{
		{"pgx", txscope.Postgres},
		{"lib/pq", txscope.Postgres},
		{"pgdriver", txscope.Postgres},
		{"mysql", txscope.MySQL},
		{"sqlite", txscope.SQLite},
	} {
		if strings.Contains(path, known.part) {
			return known.dialect
		}
	}
	return ""
}

// silentDriver reports whether the driver may return nil when PostgreSQL answered COMMIT with
// ROLLBACK because a statement had failed. pgx and lib/pq return an error; pgdriver does not. For a
// driver within another wrapper, nothing is known.
func silentDriver(c driver.Connector) bool {
	path := driverPackage(c)
	return !strings.Contains(path, "jackc/pgx") && !strings.Contains(path, "lib/pq")
}

// silentPostgres reports whether the tap has to find out by itself that a transaction has failed.
func (c *connector) silentPostgres() bool { return c.silent && c.dialect() == txscope.Postgres }

// driverPackage returns the import path of the connector's driver, or "".
func driverPackage(c driver.Connector) string {
	typ := reflect.TypeOf(c.Driver())
	if typ == nil {
		return ""
	}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return typ.PkgPath()
}

package sqltx

import (
	"database/sql/driver"
	"reflect"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/txscope"
)

// traits finds out which database this is, and whether its driver has to be
// asked before COMMIT whether the transaction failed: only pgx and lib/pq tell
// that PostgreSQL rolled back instead, and a driver behind a wrapper cannot be
// known.
func traits(source any, store outbox.Store) (dialect string, probe bool) {
	var path string
	if pool, ok := source.(interface{ Driver() driver.Driver }); ok {
		path = packageOf(pool.Driver())
	}
	if named, ok := store.(interface{ Dialect() string }); ok {
		dialect = named.Dialect()
	} else {
		dialect = dialectOf(path)
	}
	tells := strings.Contains(path, "jackc/pgx") || strings.Contains(path, "lib/pq")
	return dialect, dialect == txscope.Postgres && !tells
}

func packageOf(d driver.Driver) string {
	if d == nil {
		return ""
	}
	typ := reflect.TypeOf(d)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return typ.PkgPath()
}

// dialectOf guesses for a store that does not say.
func dialectOf(path string) string {
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

// isRefusal reports whether the error of a ROLLBACK comes from a live database
// that says that there is nothing to roll back.
func isRefusal(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no transaction is active")
}

package txscope

import (
	"database/sql/driver"
	"reflect"
	"strings"
)

// NeedsProbe reports whether the pool's driver does not tell that PostgreSQL
// answered COMMIT with ROLLBACK, because a statement had failed: only pgx and
// lib/pq do, and a driver behind a wrapper cannot be known.
func NeedsProbe(pool any, dialect string) bool {
	if dialect != Postgres {
		return false
	}
	path := DriverPackage(pool)
	return !strings.Contains(path, "jackc/pgx") && !strings.Contains(path, "lib/pq")
}

// DriverPackage is the import path of the pool's driver, or empty.
func DriverPackage(pool any) string {
	has, ok := pool.(interface{ Driver() driver.Driver })
	if !ok {
		return ""
	}
	typ := reflect.TypeOf(has.Driver())
	if typ == nil {
		return ""
	}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return typ.PkgPath()
}

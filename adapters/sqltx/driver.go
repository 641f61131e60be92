package sqltx

import (
	"strings"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// dialectOf asks the store which database this is, and guesses by the driver
// for a store that does not say.
func dialectOf(pool any, store outbox.Store) string {
	if named, ok := store.(interface{ Dialect() string }); ok {
		return named.Dialect()
	}
	return driverDialect(pool)
}

// driverDialect is the dialect by the driver of a pool or a connector, or empty.
func driverDialect(pool any) string {
	path := txscope.DriverPackage(pool)
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

package outboxbun

import (
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Store is the store for the db's dialect. It does not ask the server; see
// [sqlstore.Detect] for that. A dialect other than pgdialect, mysqldialect and
// sqlitedialect is an error.
func Store(db *bun.DB, opts ...sqlstore.Option) (*sqlstore.Store, error) {
	if db == nil {
		return nil, &outbox.FieldError{Field: "outboxbun.Store db", Problem: "is nil"}
	}
	var store *sqlstore.Store
	switch name := db.Dialect().Name(); name {
	case dialect.PG:
		store = sqlstore.Postgres(opts...)
	case dialect.MySQL:
		store = sqlstore.MySQL(opts...)
	case dialect.SQLite:
		store = sqlstore.SQLite(opts...)
	default:
		return nil, &outbox.FieldError{
			Field:   "outboxbun.Store db",
			Problem: fmt.Sprintf("has the dialect %s; known are pg, mysql and sqlite", name),
		}
	}
	return store, store.Validate()
}

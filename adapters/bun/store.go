package outboxbun

import (
	"fmt"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/internal/txscope"
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
	switch dialectOf(db) {
	case txscope.Postgres:
		store = sqlstore.Postgres(opts...)
	case txscope.MySQL:
		store = sqlstore.MySQL(opts...)
	case txscope.SQLite:
		store = sqlstore.SQLite(opts...)
	default:
		return nil, &outbox.FieldError{
			Field:   "outboxbun.Store db",
			Problem: fmt.Sprintf("has the dialect %s; known are pg, mysql and sqlite", db.Dialect().Name()),
		}
	}
	return store, store.Validate()
}

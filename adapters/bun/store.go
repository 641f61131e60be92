package outboxbun

import (
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Store returns the store for the db's dialect. Store does not ask the server; see
// [sqlstore.Detect] for that. A dialect other than pgdialect, mysqldialect and sqlitedialect is an
// error.
func Store(db *bun.DB, opts ...sqlstore.Option) (*sqlstore.Store, error) {
	if db == nil {
		return nil, &outbox.FieldError{Field: "outboxbun.Store db", Problem: "is nil"}
	}
	dialects := map[dialect.Name]func(...sqlstore.Option) *sqlstore.Store{
		dialect.PG: sqlstore.Postgres, dialect.MySQL: sqlstore.MySQL, dialect.SQLite: sqlstore.SQLite,
	}
	name := db.Dialect().Name()
	of, known := dialects[name]
	if !known {
		return nil, &outbox.FieldError{Field: "outboxbun.Store db", Problem: fmt.Sprintf("has the dialect %s; known are pg, mysql and sqlite", name)}
	}
	store := of(opts...)
	return store, store.Validate()
}

package outboxgorm

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Store returns the store for the database that GORM speaks to, by the name of the dialector:
// "postgres", "mysql" or "sqlite". Store does not ask the server; see [sqlstore.Detect] for that,
// and [sqlstore.MySQL] for the difference.
func Store(db *gorm.DB, opts ...sqlstore.Option) (*sqlstore.Store, error) {
	if db == nil || db.Config == nil || db.Dialector == nil {
		return nil, &outbox.FieldError{Field: "outboxgorm.Store db", Problem: "is nil or was not made by gorm.Open"}
	}
	dialects := map[string]func(...sqlstore.Option) *sqlstore.Store{
		"postgres": sqlstore.Postgres, "mysql": sqlstore.MySQL, "sqlite": sqlstore.SQLite,
	}
	of, known := dialects[db.Name()]
	if !known {
		return nil, &outbox.FieldError{Field: "outboxgorm.Store db", Problem: fmt.Sprintf(
			"has the dialect %q; known are postgres, mysql and sqlite: if it speaks one of those, use sqlstore.Postgres, MySQL or SQLite", db.Name())}
	}
	store := of(opts...)
	return store, store.Validate()
}

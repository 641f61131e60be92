package outboxgorm

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Store is the store for the database that GORM speaks to, by the name of its
// dialector: "postgres", "mysql" or "sqlite". It asks nothing of the server; see
// [sqlstore.Detect] for that, and [sqlstore.MySQL] for what the difference is.
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

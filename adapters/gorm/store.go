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
	var store *sqlstore.Store
	switch name := db.Name(); name {
	case "postgres":
		store = sqlstore.Postgres(opts...)
	case "mysql":
		store = sqlstore.MySQL(opts...)
	case "sqlite":
		store = sqlstore.SQLite(opts...)
	default:
		return nil, &outbox.FieldError{Field: "outboxgorm.Store db", Problem: fmt.Sprintf(
			"has the dialect %q; known are postgres, mysql and sqlite: if it speaks one of those, use sqlstore.Postgres, MySQL or SQLite", name)}
	}
	return store, store.Validate()
}

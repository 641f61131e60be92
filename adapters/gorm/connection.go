package outboxgorm

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/outbox"
)

// Connection is [gorm.DB.Connection], which runs fn on one connection of the
// pool, for a handle that has the plugin: the transactions that fn begins are
// managed. GORM's own goes around the plugin. Callbacks run while the connection
// is still taken, so they need another if they use the database.
func Connection(db *gorm.DB, fn func(conn *gorm.DB) error) error {
	if db == nil || db.Config == nil || db.Statement == nil {
		return &outbox.FieldError{Field: "outboxgorm.Connection db", Problem: "is nil or was not made by gorm.Open"}
	}
	p, ok := pluginOf(db)
	if !ok {
		return &outbox.FieldError{Field: "outboxgorm.Connection db", Problem: "lacks the plugin; call db.Use(outboxgorm.Plugin()) first"}
	}
	pinned, err := db.DB()
	if err != nil {
		return fmt.Errorf("outbox: finding the *sql.DB of outboxgorm.Connection: %w", err)
	}
	return db.Connection(func(conn *gorm.DB) error {
		wrapped := p.newPool(conn.Statement.ConnPool, pinned, db.Name())
		conn.Statement.ConnPool = wrapped
		// GORM sets the handle back to the pool after each transaction that it
		// began by itself. From a session, each statement starts anew.
		return fn(conn.Session(&gorm.Session{}))
	})
}

package outboxgorm

import (
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// Plugin is [sqltx.Watch] for a pool that GORM has opened: db.Use puts a followed
// pool in its place, which db.DB returns from then on. Call it on what gorm.Open
// returned, before sessions are made of that. The pool below stays open when the
// followed one is closed: it lives as long as the program.
func Plugin() gorm.Plugin { return plugin{} }

type plugin struct{}

func (plugin) Name() string { return "outbox" }

// Initialize is called by db.Use, and by dbresolver for each of its pools.
func (plugin) Initialize(db *gorm.DB) error {
	at := &db.ConnPool
	if prepared, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok {
		at = &prepared.ConnPool
	}
	pool, ok := (*at).(*sql.DB)
	if !ok {
		return &outbox.FieldError{Field: "outboxgorm.Plugin", Problem: fmt.Sprintf("finds a %T in the place of the *sql.DB; open the pool with sqltx.Open", *at)}
	}
	*at = sqltx.Watch(pool)
	db.Statement.ConnPool = db.ConnPool
	return nil
}

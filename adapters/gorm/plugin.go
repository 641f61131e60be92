package outboxgorm

import (
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// Plugin is [sqltx.Watch] for a pool that GORM opens: it puts a followed pool in its
// place, which db.DB returns from then on. Give it to gorm.Open as an option, or to
// db.Use before sessions are made of db. The pool below stays open when the followed
// one is closed: it lives as long as the program.
type Plugin struct{}

var (
	_ gorm.Plugin = Plugin{}
	_ gorm.Option = Plugin{}
)

// Name implements [gorm.Plugin].
func (Plugin) Name() string { return "outbox" }

// Apply implements [gorm.Option]; it changes nothing.
func (Plugin) Apply(*gorm.Config) error { return nil }

// AfterInitialize is called by gorm.Open.
func (p Plugin) AfterInitialize(db *gorm.DB) error { return db.Use(p) }

// Initialize is called by db.Use, and by dbresolver for each of its pools.
func (Plugin) Initialize(db *gorm.DB) error {
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

package outboxgorm

import (
	"database/sql"
	"fmt"
	"reflect"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// Plugin is [sqltx.TakeOver] for a pool that GORM opens: the plugin replaces the pool with a
// followed pool, which db.DB returns from then on. The settings of the followed *sql.DB hold for
// the connections, and Close of the followed *sql.DB closes them. Give the plugin to gorm.Open as
// an option, or to db.Use before sessions are made of db. A *sql.DB that db.DB returned before the
// plugin works, but the settings and Close of this *sql.DB no longer reach the connections of the
// followed pool.
//
// For a pool that you give to GORM, as the field Conn of the dialector, the plugin is
// [sqltx.Watch]: set the limits of the pool, and close the pool, as before.
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

// Initialize is called by db.Use, and by dbresolver for each pool of dbresolver.
func (Plugin) Initialize(db *gorm.DB) error {
	at := &db.ConnPool
	if prepared, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok {
		at = &prepared.ConnPool
	}
	pool, ok := (*at).(*sql.DB)
	if !ok {
		return &outbox.FieldError{Field: "outboxgorm.Plugin", Problem: fmt.Sprintf("finds a %T in the place of the *sql.DB; open the pool with sqltx.Open", *at)}
	}
	if isGiven(db.Dialector, pool) {
		*at = sqltx.Watch(pool)
	} else {
		*at = sqltx.TakeOver(pool)
	}
	db.Statement.ConnPool = db.ConnPool
	return nil
}

// isGiven reports whether the pool is the dialector's Conn, and so the user's. The dialectors of
// GORM's databases have such a field.
func isGiven(dialector gorm.Dialector, pool *sql.DB) bool {
	of := reflect.Indirect(reflect.ValueOf(dialector))
	if of.Kind() != reflect.Struct {
		return false
	}
	field, ok := of.Type().FieldByName("Conn")
	if !ok || !field.IsExported() {
		return false
	}
	conn, err := of.FieldByIndexErr(field.Index)
	return err == nil && conn.Interface() == any(pool)
}

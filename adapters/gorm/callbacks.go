package outboxgorm

import (
	"database/sql"
	"errors"

	"gorm.io/gorm"
)

// The names of our callbacks in GORM's lists.
const (
	observeName   = "outbox:observe"
	unprepareName = "outbox:unprepare"
)

// registerCallbacks has GORM tell us of what passes a [tx] by when statements
// are prepared: then GORM runs them on *sql.Stmt, which nobody can watch.
func registerCallbacks(db *gorm.DB) error {
	c := db.Callback()
	return errors.Join(
		c.Create().After("*").Register(observeName, observe),
		c.Query().After("*").Register(observeName, observe),
		c.Update().After("*").Register(observeName, observe),
		c.Delete().After("*").Register(observeName, observe),
		c.Row().After("*").Register(observeName, observeRows),
		c.Raw().After("*").Register(observeName, observe),

		c.Query().Before("gorm:query").Register(unprepareName, bypassPreparing),
		c.Row().Before("gorm:row").Register(unprepareName, bypassPreparing),
		c.Raw().Before("gorm:raw").Register(unprepareName, bypassPreparing),
	)
}

// observe tells the transaction's scope of a statement's error, whether it came
// from the statement or from its rows.
func observe(db *gorm.DB) {
	connPool := db.Statement.ConnPool
	if d, ok := connPool.(*unprepared); ok {
		db.Statement.ConnPool = d.prepared
		return // the tx saw it itself
	}
	err := db.Error
	if row, ok := db.Statement.Dest.(*sql.Row); ok && err == nil && row != nil {
		err = row.Err()
	}
	if err == nil {
		return
	}
	if t := txOf(connPool); t != nil {
		t.scope().ObserveError(err)
	}
}

// unprepared is a transaction's connection pool for one statement.
type unprepared struct {
	*tx
	prepared *gorm.PreparedStmtTX
}

// bypassPreparing has a raw statement that controls the transaction executed and
// not prepared, as GORM does itself in SavePoint and RollbackTo: so the
// transaction sees it, and MySQL, which cannot prepare most of them, takes it.
func bypassPreparing(db *gorm.DB) {
	prepared, ok := db.Statement.ConnPool.(*gorm.PreparedStmtTX)
	if !ok || db.Statement.SQL.Len() == 0 || db.Error != nil {
		return
	}
	if t := txOf(prepared); t != nil && t.controls(db.Statement.SQL.String()) {
		db.Statement.ConnPool = &unprepared{tx: t, prepared: prepared}
	}
}

package outboxgorm

import (
	"database/sql"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// tx is the transaction that GORM gets. It has every method of [gorm.Tx]:
// without StmtContext, GORM would refuse it when statements are prepared.
type tx struct {
	gorm.Tx // a *sql.Tx, or a *customTx

	pool       *pool
	session    *txscope.Session
	savepoints atomic.Uint64
	forget     func() bool // what keeps a customTx; may be nil
}

var (
	_ gorm.Tx             = (*tx)(nil)
	_ gorm.GetDBConnector = (*tx)(nil)
)

func (t *tx) scope() *txscope.Scope { return t.session.Scope() }

// Commit commits. When it returns, the after-commit callbacks have run.
func (t *tx) Commit() error {
	if t.forget != nil {
		defer t.forget()
	}
	return t.session.Commit(t.Tx.Commit)
}

// Rollback rolls back; after Commit it returns [sql.ErrTxDone].
func (t *tx) Rollback() error {
	if t.forget != nil {
		defer t.forget()
	}
	return t.session.Rollback(nil)
}

// GetDBConn is where [gorm.DB.DB] finds the pool.
func (t *tx) GetDBConn() (*sql.DB, error) { return t.pool.db, nil }

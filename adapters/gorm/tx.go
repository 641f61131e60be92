package outboxgorm

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/outbox/txscope"
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

// ExecContext is the inner one's. Statements about savepoints are followed.
func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := t.Tx.ExecContext(ctx, query, args...)
	t.scope().Observe(ctx, query, err)
	return result, err
}

// QueryContext is the inner one's.
func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := t.Tx.QueryContext(ctx, query, args...)
	t.scope().Observe(ctx, query, err)
	return rows, err
}

// QueryRowContext is the inner one's.
func (t *tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	row := t.Tx.QueryRowContext(ctx, query, args...)
	t.scope().Observe(ctx, query, row.Err())
	return row
}

// PrepareContext is the inner one's. GORM calls it when it prepares statements;
// those that control the transaction do not come here, see [bypassPreparing].
// From who uses the connection pool by hand they are refused, for nobody could
// tell when they run.
func (t *tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if t.controls(query) {
		return nil, errPrepare
	}
	stmt, err := t.Tx.PrepareContext(ctx, query)
	t.scope().ObserveError(err)
	return stmt, err
}

// controls reports whether the statement is about savepoints or the
// transaction's end.
func (t *tx) controls(query string) bool {
	switch txscope.Parse(query).Op {
	case txscope.None:
		return false
	case txscope.Begin, txscope.ImplicitCommit:
		return t.pool.dialect == txscope.MySQL
	default:
		return true
	}
}

var errPrepare = errors.New("outbox: a statement that controls the transaction cannot be prepared in it; execute it with the Exec of the *gorm.DB")

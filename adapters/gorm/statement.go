package outboxgorm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// ExecContext is the inner one's. Statements about savepoints are followed.
func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.before(ctx, query); err != nil {
		return nil, err
	}
	result, err := t.Tx.ExecContext(ctx, query, args...)
	t.scope().Observe(ctx, query, err)
	return result, err
}

// QueryContext is the inner one's.
func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.before(ctx, query); err != nil {
		return nil, err
	}
	rows, err := t.Tx.QueryContext(ctx, query, args...)
	t.scope().Observe(ctx, query, err)
	return rows, err
}

// QueryRowContext is the inner one's.
func (t *tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := t.before(ctx, query); err != nil {
		return t.Tx.QueryRowContext(endedContext{ctx, err}, query, args...)
	}
	row := t.Tx.QueryRowContext(ctx, query, args...)
	t.scope().Observe(ctx, query, row.Err())
	return row
}

// StmtContext is the inner one's. GORM calls it just before it runs a prepared
// statement.
func (t *tx) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	t.scope().Verify(ctx)
	return t.Tx.StmtContext(ctx, stmt)
}

// before finds out, before a statement, whether a transaction that is suspected
// of it is gone, and refuses a savepoint then: on SQLite it would begin another
// transaction.
func (t *tx) before(ctx context.Context, query string) error {
	t.scope().Verify(ctx)
	cause := t.scope().Doomed()
	if cause == nil || txscope.Parse(query).Op != txscope.Savepoint {
		return nil
	}
	return fmt.Errorf("%w: the database rolled it back: %w", outbox.ErrNoTransaction, cause)
}

// endedContext is a context that has ended for a reason of ours: what database/sql
// is asked for with it fails with that.
type endedContext struct {
	context.Context
	err error
}

func (endedContext) Done() <-chan struct{} { return ended }

func (c endedContext) Err() error { return c.err }

// ended is closed.
var ended = func() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

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

// observeRows is [observe] of a statement whose rows are read after GORM's
// callbacks, by Scan or by who called Rows or Row. An error may come with them
// unseen, hence SQLite is asked whether the transaction is still there, before the
// next statement or COMMIT, when the statement was one that writes.
func observeRows(db *gorm.DB) {
	t := txOf(db.Statement.ConnPool)
	observe(db)
	if t != nil && db.Error == nil && t.pool.dialect == txscope.SQLite && !reads(db.Statement.SQL.String()) {
		t.scope().Suspect(txscope.RolledBack, errUnseen)
	}
}

// reads reports whether the statement is plainly one that only reads.
func reads(query string) bool {
	const word = "SELECT"
	query = strings.TrimLeft(query, " \t\r\n")
	return len(query) >= len(word) && strings.EqualFold(query[:len(word)], word)
}

var errUnseen = errors.New("a statement failed with its rows")

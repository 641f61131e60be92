package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// connTx is a transaction of a wrapped connection. Like that, it is used by one
// goroutine at a time, but for its scope and its callbacks.
type connTx struct {
	// ctx is the one that the transaction was begun with.
	ctx    context.Context
	conn   *conn
	inner  driver.Tx
	cancel func() // of the driver's context
	// scope follows the transaction from BEGIN on, for a savepoint may be older
	// than the first event.
	scope     *txscope.Scope
	dialect   string
	implicit  string // see observe
	written   bool   // an adapter has asked for the scope
	callbacks callbackQueue
}

func newConnTx(ctx context.Context, c *conn, inner driver.Tx, cancel func()) *connTx {
	dialect := c.connector.dialect()
	return &connTx{
		ctx: ctx, conn: c, inner: inner, cancel: cancel, dialect: dialect,
		scope: txscope.New(txscope.Config{Dialect: dialect, Execer: inquirer{c}}),
	}
}

// inquirer is with what the scope asks the database whether the transaction
// still exists, where an error does not tell: SQLite ends it because of INSERT OR
// ROLLBACK, of a full disk, or of a context that interrupted a writing statement,
// and MySQL because of a lock timeout when innodb_rollback_on_timeout is set. What
// is executed then would commit by itself.
type inquirer struct{ conn *conn }

func (i inquirer) ExecContext(ctx context.Context, query string, _ ...any) (sql.Result, error) {
	return nil, i.conn.run(ctx, query)
}

// observe follows a statement. As long as the database is not known, it keeps
// the first statement that would have committed on MySQL.
func (tx *connTx) observe(ctx context.Context, query string, err error) {
	if tx.dialect == "" && tx.implicit == "" {
		switch txscope.Parse(query).Op {
		case txscope.Begin, txscope.ImplicitCommit:
			tx.implicit = strings.Clone(query)
		default:
		}
	}
	tx.scope.Observe(ctx, query, err)
	if err != nil {
		tx.scope.Verify(ctx)
	}
}

// attach takes note that an adapter writes in the transaction, which then goes
// by the rules of the adapter's dialect. A transaction that began before anybody
// had said what database this is starts its scope anew: a rollback to one of its
// earlier savepoints leaves open what it undid.
func (tx *connTx) attach(dialect string) {
	tx.written = true
	tx.conn.connector.learn(dialect)
	if tx.dialect != "" || dialect == "" {
		return
	}
	tx.dialect = dialect
	if !tx.scope.Active() {
		return
	}
	tx.scope = txscope.New(txscope.Config{Dialect: dialect, Execer: inquirer{tx.conn}})
	if tx.implicit != "" {
		tx.scope.Observe(tx.ctx, tx.implicit, nil)
	}
}

// Commit commits, unless the outbox wrote in a transaction that cannot commit
// any more: then it rolls back and returns why.
func (tx *connTx) Commit() error {
	if tx.written {
		if err := tx.refusal(); err != nil {
			outcome, undoErr := txscope.RollbackOutcome(tx.inner.Rollback())
			if outcome == txscope.Unknown {
				tx.end(outcome, undoErr)
			} else {
				tx.end(outcome, err)
			}
			return err
		}
	}
	err := tx.inner.Commit()
	tx.end(txscope.Classify(err), err)
	return err
}

// refusal is why COMMIT must not be sent. The database would say nothing of it,
// and database/sql may be late to notice that the context has ended.
func (tx *connTx) refusal() error {
	if err := tx.ctx.Err(); err != nil {
		return err
	}
	tx.scope.Verify(tx.ctx)
	if cause := tx.scope.Doomed(); cause != nil {
		return fmt.Errorf("outbox: the transaction was rolled back before COMMIT: %w", cause)
	}
	if tx.scope.Held() && tx.conn.connector.needsProbe(tx.dialect) {
		return tx.conn.run(context.WithoutCancel(tx.ctx), "SELECT 1") // PostgreSQL refuses it when the transaction has failed
	}
	return nil
}

// run runs a statement of ours, which nobody observes.
func (c *conn) run(ctx context.Context, query string) error {
	if c.execer != nil {
		if _, err := c.execer.ExecContext(ctx, query, nil); !errors.Is(err, driver.ErrSkip) {
			return err
		}
	}
	inner, err := c.prepare(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = inner.Close() }()
	_, err = (&stmt{Stmt: inner}).exec(ctx, nil)
	return err
}

// Rollback rolls back.
func (tx *connTx) Rollback() error {
	err := tx.inner.Rollback()
	outcome, cause := txscope.RollbackOutcome(err)
	if cause == nil {
		cause = context.Cause(tx.ctx) // it may be why
	}
	tx.end(outcome, cause)
	return err
}

// lost ends a transaction whose connection went away without COMMIT or ROLLBACK.
func (tx *connTx) lost() { tx.end(txscope.Unknown, driver.ErrBadConn) }

func (tx *connTx) end(outcome txscope.Outcome, cause error) {
	if tx.conn.tx == tx {
		tx.conn.tx = nil
	}
	tx.cancel()
	tx.scope.Finish(tx.ctx, outcome, cause)
}

package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// transaction is a transaction of a followed connection. database/sql calls the methods of
// [driver.Tx] from one goroutine at a time; the methods of [outbox.TxScope] are safe for concurrent
// use.
type transaction struct {
	// Scope follows the transaction from BEGIN on: a savepoint may be older than
	// the first event.
	*txscope.Scope
	ctx    context.Context // of BEGIN; the transaction ends with the context
	conn   *conn
	inner  driver.Tx
	cancel func() // of the driver's context
	// above is known once an adapter has found the transaction. The end may come meanwhile, on a
	// goroutine of database/sql, so mu serializes learn and forget.
	mu         sync.Mutex
	above      above
	over       bool
	savepoints atomic.Int64
}

// above describes the code above the connection, which the connection does not know.
type above struct {
	source any
	tx     *sql.Tx // nil when execer is of another type
	execer outbox.Execer
}

var (
	_ driver.Tx      = (*transaction)(nil)
	_ outbox.TxScope = (*transaction)(nil)
)

func newTransaction(ctx context.Context, c *conn, inner driver.Tx, cancel func()) *transaction {
	return &transaction{Scope: txscope.New(c.connector.dialect(), c.inquire), ctx: ctx, conn: c, inner: inner, cancel: cancel}
}

// learn is called with the code above the transaction, before anything uses it.
func (t *transaction) learn(a above) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.above = a
	if a.tx != nil && !t.over {
		t.conn.connector.opened(t)
	}
}

// forget is called at the end of the transaction.
func (t *transaction) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.above.tx != nil {
		t.conn.connector.ended(t)
	}
}

// Source returns the followed pool.
func (t *transaction) Source() any { return t.above.source }

// ExecContext runs a statement in the *sql.Tx, unless the transaction is over.
func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.usable(ctx); err != nil {
		return nil, err
	}
	result, err := t.above.execer.ExecContext(keepContext{ctx}, query, args...)
	switch {
	case errors.Is(err, sql.ErrTxDone): // the transaction ends just now
		err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	case errors.Is(err, driver.ErrBadConn): // the error of pgx and go-sql-driver while rows are unread
		err = fmt.Errorf("the connection is lost, or the transaction has a query whose rows are unread: read or close them first: %w", err)
	}
	return result, err
}

// usable returns why no statement may run in the transaction.
func (t *transaction) usable(ctx context.Context) error {
	if t.Suspected() { // the connection asks the database
		if _, err := ask(ctx, t.conn.connector, t.above); err != nil {
			return err
		}
	}
	return t.Refusal()
}

// QueryContext runs a query in the *sql.Tx, unless the transaction is over. A transaction of another
// type has to have a QueryContext, too.
func (t *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.usable(ctx); err != nil {
		return nil, err
	}
	reader, ok := t.above.execer.(interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	})
	if !ok {
		return nil, fmt.Errorf("a %T has no QueryContext: give the adapter the *sql.Tx", t.above.execer)
	}
	rows, err := reader.QueryContext(ctx, query, args...)
	if errors.Is(err, sql.ErrTxDone) { // the transaction ends just now
		err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	return rows, err
}

// verify asks the database after a failed statement.
func (t *transaction) verify(err error) {
	if err != nil {
		t.Verify(t.ctx)
	}
}

// Commit commits, unless the transaction has events and cannot commit any more: then Commit rolls
// back and returns the reason.
func (t *transaction) Commit() error {
	concerned := t.Held()
	if concerned {
		if err := t.refusal(); err != nil {
			undone := t.inner.Rollback()
			t.check(undone)
			t.end(rollbackEnd(undone, err))
			return err
		}
	}
	err := t.inner.Commit()
	end := txscope.Classify(err)
	switch end {
	case txscope.Committed:
	case txscope.RolledBack: // glebarez/sqlite leaves the transaction open
		t.check(t.conn.run(context.WithoutCancel(t.ctx), "ROLLBACK"))
	case txscope.Unknown:
		t.check(err)
		if concerned {
			err = fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, err)
		}
	}
	t.end(end, err)
	return err
}

// refusal returns why COMMIT must not be sent: the database would not report the failure, and
// database/sql may not have noticed yet that the context has ended.
func (t *transaction) refusal() error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	t.Verify(t.ctx)
	if cause := t.Doomed(); cause != nil {
		return fmt.Errorf("outbox: the transaction was rolled back before COMMIT: %w", cause)
	}
	if t.conn.connector.silentPostgres() {
		return t.conn.run(context.WithoutCancel(t.ctx), "SELECT 1") // PostgreSQL refuses this in a failed transaction
	}
	return nil
}

// Rollback rolls back the transaction.
func (t *transaction) Rollback() error {
	err := t.inner.Rollback()
	t.check(err)
	if t.ctx.Err() != nil && !t.conn.keeps {
		t.conn.broken = true // as database/sql does with such a driver
	}
	t.end(rollbackEnd(err, context.Cause(t.ctx)))
	return err
}

// check discards the connection when a COMMIT or ROLLBACK failed, because the transaction may still
// be open.
func (t *transaction) check(err error) {
	if err != nil && !isNoTransaction(err) {
		t.conn.broken = true
	}
}

// rollbackEnd returns the end of a transaction whose ROLLBACK returned err, because of cause. The
// transaction is rolled back even when the connection broke, because no COMMIT was sent. When
// SQLite says that there is no transaction, other code has ended the transaction.
func rollbackEnd(err, cause error) (txscope.End, error) {
	if isNoTransaction(err) {
		return txscope.Unknown, err
	}
	if cause == nil {
		cause = err
	}
	return txscope.RolledBack, cause
}

// isNoTransaction reports whether SQLite refused a ROLLBACK because there is no
// transaction.
func isNoTransaction(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no transaction is active")
}

func (t *transaction) end(end txscope.End, cause error) {
	if t.conn.tx == t {
		t.conn.tx = nil
	}
	t.forget()
	t.cancel()
	t.Finish(t.ctx, end, cause)
}

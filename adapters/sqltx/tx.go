package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/txscope"
)

// Tx is a transaction, or a savepoint in one, that the outbox knows of. It
// embeds *sql.Tx and is used like it; the embedded value may go to code that
// knows only that type, as long as Commit and Rollback are called here.
type Tx struct {
	*sql.Tx

	session   *session
	ctx       context.Context // of this level: when it ends, so does the level
	savepoint string          // "" for the transaction itself
	done      atomic.Bool
}

func (tx *Tx) open() bool { return !tx.done.Load() && !tx.session.Ending() }

// Commit commits the transaction, or releases the savepoint. When it returns,
// the after-commit callbacks have run. After the context has ended it rolls back
// and returns the context's error. An error for which errors.Is(err,
// [outbox.ErrOutcomeUnknown]) holds leaves open what happened.
func (tx *Tx) Commit() error {
	if !tx.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if tx.savepoint == "" {
		return tx.session.Commit(tx.Tx.Commit)
	}
	return tx.release()
}

// Rollback rolls the transaction, or what was done since the savepoint, back.
// After Commit it returns [sql.ErrTxDone] and does nothing.
func (tx *Tx) Rollback() error { return tx.rollback(nil) }

func (tx *Tx) rollback(cause error) error {
	if !tx.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if tx.savepoint == "" {
		return tx.session.Rollback(cause)
	}
	if tx.session.Ending() {
		return sql.ErrTxDone
	}
	return tx.rollbackTo()
}

// nest makes a savepoint.
func (tx *Tx) nest(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := tx.session.Scope().Doomed(); err != nil {
		return nil, fmt.Errorf("%w: the database rolled it back: %w", outbox.ErrNoTransaction, err)
	}
	name := "outbox_" + strconv.FormatUint(tx.session.savepoints.Add(1), 10)
	inner := &Tx{Tx: tx.Tx, session: tx.session, ctx: ctx, savepoint: name}
	if err := inner.control("SAVEPOINT " + name); err != nil {
		return nil, fmt.Errorf("outbox: opening a savepoint: %w", err)
	}
	return inner, nil
}

func (tx *Tx) release() error {
	return tx.session.Release(tx.ctx, func() error { return tx.control("RELEASE SAVEPOINT " + tx.savepoint) }, tx.rollbackTo)
}

func (tx *Tx) rollbackTo() error {
	if err := tx.control("ROLLBACK TO SAVEPOINT " + tx.savepoint); err != nil {
		return fmt.Errorf("outbox: rolling back to a savepoint: %w", err)
	}
	// The savepoint outlives that; it is only clutter now.
	_ = tx.control("RELEASE SAVEPOINT " + tx.savepoint)
	return nil
}

// control runs a savepoint statement, even when the caller's context has ended.
func (tx *Tx) control(statement string) error {
	_, err := tx.ExecContext(context.WithoutCancel(tx.ctx), statement)
	return err
}

// Exec is [sql.Tx.Exec].
func (tx *Tx) Exec(query string, args ...any) (sql.Result, error) {
	return tx.ExecContext(context.Background(), query, args...)
}

// ExecContext is [sql.Tx.ExecContext]. Statements about savepoints are followed.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := tx.Tx.ExecContext(ctx, query, args...)
	tx.session.Scope().Observe(ctx, query, err)
	return result, err
}

// Query is [sql.Tx.Query].
func (tx *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	return tx.QueryContext(context.Background(), query, args...)
}

// QueryContext is [sql.Tx.QueryContext].
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := tx.Tx.QueryContext(ctx, query, args...)
	tx.session.Scope().Observe(ctx, query, err)
	return rows, err
}

// QueryRow is [sql.Tx.QueryRow].
func (tx *Tx) QueryRow(query string, args ...any) *sql.Row {
	return tx.QueryRowContext(context.Background(), query, args...)
}

// QueryRowContext is [sql.Tx.QueryRowContext].
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	row := tx.Tx.QueryRowContext(ctx, query, args...)
	tx.session.Scope().Observe(ctx, query, row.Err())
	return row
}

// Prepare is [sql.Tx.Prepare], with the limit of [Tx.PrepareContext].
func (tx *Tx) Prepare(query string) (*sql.Stmt, error) {
	return tx.PrepareContext(context.Background(), query)
}

// PrepareContext is [sql.Tx.PrepareContext]. A statement about savepoints or the
// transaction's end is refused, for nobody could tell when it runs: execute it
// directly.
func (tx *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	switch op := txscope.Parse(query).Op; op {
	case txscope.None:
	case txscope.Begin, txscope.ImplicitCommit:
		if tx.session.dialect == txscope.MySQL {
			return nil, errPrepare
		}
	default:
		return nil, errPrepare
	}
	stmt, err := tx.Tx.PrepareContext(ctx, query)
	tx.session.Scope().ObserveError(err)
	return stmt, err
}

var errPrepare = errors.New("outbox: a statement that controls the transaction cannot be prepared in it; execute it with ExecContext")

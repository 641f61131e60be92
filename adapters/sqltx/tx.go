package sqltx

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

// Tx is a transaction, or a savepoint in one, that the outbox knows of. It
// embeds *sql.Tx and is used like it; the embedded value may go to code that
// knows only that type, as long as Commit and Rollback are called here and so
// are statements about savepoints.
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

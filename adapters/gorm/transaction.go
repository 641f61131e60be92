package outboxgorm

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

// transaction is what [Adapter.Begin] opened: a transaction, or a savepoint in
// one.
type transaction struct {
	tx        *tx
	ctx       context.Context // of this level: a savepoint ends with it
	savepoint string          // "" for the transaction itself
	refuses   error           // why no event can be written in it, or nil
	done      atomic.Bool
}

var _ outbox.Transaction = (*transaction)(nil)

// Commit commits the transaction, or releases the savepoint.
func (t *transaction) Commit() error {
	if !t.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if t.savepoint == "" {
		return t.tx.Commit()
	}
	release := func() error { return t.control("RELEASE SAVEPOINT " + t.savepoint) }
	return t.tx.session.Release(t.ctx, release, t.rollbackTo)
}

// Rollback rolls the transaction, or what was done since the savepoint, back.
func (t *transaction) Rollback() error {
	if !t.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if t.savepoint == "" {
		return t.tx.Rollback()
	}
	if t.tx.session.Ending() {
		return sql.ErrTxDone
	}
	return t.rollbackTo()
}

// nest makes a savepoint.
func (t *transaction) nest(ctx context.Context) (*transaction, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.refuses != nil {
		return nil, fmt.Errorf("outbox: opening a savepoint: %w", t.refuses)
	}
	if err := t.tx.scope().Doomed(); err != nil {
		return nil, fmt.Errorf("%w: the database rolled it back: %w", outbox.ErrNoTransaction, err)
	}
	name := "outbox_" + strconv.FormatUint(t.tx.savepoints.Add(1), 10)
	inner := &transaction{tx: t.tx, ctx: ctx, savepoint: name}
	if err := inner.control("SAVEPOINT " + name); err != nil {
		return nil, fmt.Errorf("outbox: opening a savepoint: %w", err)
	}
	return inner, nil
}

func (t *transaction) rollbackTo() error {
	if err := t.control("ROLLBACK TO SAVEPOINT " + t.savepoint); err != nil {
		return fmt.Errorf("outbox: rolling back to a savepoint: %w", err)
	}
	// The savepoint outlives that; it is only clutter now.
	_ = t.control("RELEASE SAVEPOINT " + t.savepoint)
	return nil
}

// control runs a savepoint statement, even when the caller's context has ended.
func (t *transaction) control(statement string) error {
	_, err := t.tx.ExecContext(context.WithoutCancel(t.ctx), statement)
	return err
}

package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

// Transactor is an [outbox.Transactor] whose transactions are scopes of this package, for code that
// begins its own transactions with [outbox.InTx] or a middleware. Within a transaction of the same
// source a Transactor begins a savepoint, and a transaction whose context ends is rolled back. A
// Transactor is safe for concurrent use.
type Transactor struct {
	source any
	// CommitError, if not nil, is the error of every Commit of a transaction, which rolls back.
	// With [outbox.ErrOutcomeUnknown] the outcome is unknown and there are no rows. Set CommitError
	// before use.
	CommitError error

	savepoints atomic.Int64
}

// NewTransactor makes a transactor of a source; see [NewScope].
func NewTransactor(source any) *Transactor { return &Transactor{source: outbox.PoolOf(source)} }

// Begin implements [outbox.Transactor].
func (t *Transactor) Begin(ctx context.Context, _ *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("outboxtest: beginning a transaction: %w", err)
	}
	if found, ok := outbox.ScopeFromContext(ctx, t.source); ok {
		scope, ours := found.(*Scope)
		switch {
		case !ours:
			return nil, nil, fmt.Errorf("outboxtest: the context carries a %T of this source, which this transactor did not begin", found)
		case !scope.Active():
			return nil, nil, fmt.Errorf("%w: that of the context has ended", outbox.ErrNoTransaction)
		}
		name := fmt.Sprintf("outboxtest_%d", t.savepoints.Add(1))
		if err := scope.Savepoint(name); err != nil {
			return nil, nil, err
		}
		return ctx, &nested{scope: scope, name: name}, nil
	}
	scope := NewScope(t.source)
	scope.ctx = context.WithoutCancel(ctx)
	tx := &transaction{scope: scope, commitError: t.CommitError}
	tx.stop = context.AfterFunc(ctx, func() { _ = scope.Rollback(context.Cause(ctx)) })
	return scope.Context(ctx), tx, nil
}

// transaction is an outermost transaction.
type transaction struct {
	scope       *Scope
	commitError error
	stop        func() bool // disables the rollback when the context ends
}

func (t *transaction) Commit() error {
	t.stop()
	if t.commitError == nil {
		return t.scope.Commit()
	}
	end := func() error { return t.scope.Rollback(t.commitError) }
	if errors.Is(t.commitError, outbox.ErrOutcomeUnknown) {
		end = func() error { return t.scope.CommitUnknown(false) }
	}
	if err := end(); err != nil {
		return err
	}
	return t.commitError
}

func (t *transaction) Rollback() error {
	t.stop()
	return t.scope.Rollback(nil)
}

// nested is a savepoint.
type nested struct {
	scope *Scope
	name  string
	ended atomic.Bool
}

func (n *nested) Commit() error {
	if n.ended.Swap(true) {
		return sql.ErrTxDone
	}
	return n.scope.Release(n.name)
}

func (n *nested) Rollback() error {
	if n.ended.Swap(true) {
		return sql.ErrTxDone
	}
	if err := n.scope.RollbackTo(n.name); err != nil {
		return err
	}
	return n.scope.Release(n.name)
}

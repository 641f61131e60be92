package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// RunInTx runs fn in a transaction. The transaction is committed when fn returns nil, and rolled
// back when fn returns an error, panics or ends its goroutine, or when ctx ends before fn has
// returned. The context that fn gets carries the transaction. When ctx already carries an open
// transaction of the same pool, fn runs under a savepoint of that transaction and opts are ignored.
// fn leaves Commit and Rollback to RunInTx: when fn called Commit or Rollback, RunInTx returns
// [sql.ErrTxDone].
//
// When RunInTx returns, the transaction is over and its callbacks have run. An
// error of COMMIT that is [outbox.ErrOutcomeUnknown] leaves open whether the
// transaction committed.
func (a *Adapter) RunInTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if outer, ok := a.open(ctx); ok && outer.above.tx == nil {
		return fmt.Errorf("%w with a *sql.Tx in the context: it is a %T; use Begin or outbox.InTx", outbox.ErrNoTransaction, outer.above.execer)
	}
	txCtx, l, err := a.beginLevel(ctx, a.plain(opts))
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			_ = l.rollback(errAbandoned)
		}
	}()
	err = fn(txCtx, l.tx.above.tx)
	finished = true
	if err == nil {
		return l.Commit()
	}
	if failed := l.rollback(err); failed != nil && !errors.Is(failed, sql.ErrTxDone) {
		return fmt.Errorf("%w (then rolling back failed: %w)", err, failed)
	}
	return err
}

var errAbandoned = errors.New("outbox: the transaction's function panicked or ended its goroutine")

// Begin implements [outbox.Transactor]: it begins a transaction, or a savepoint when ctx carries an
// open transaction of the same pool, and returns a context that carries the transaction. opts are
// for a transaction and may be nil. Callbacks have run when Commit or Rollback of the transaction
// returns.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return a.BeginWith(ctx, a.plain(opts))
}

// BeginFunc begins a transaction the way of a framework. It returns the context for the code in the
// transaction, and the framework's transaction, whose Commit or Rollback will be called.
type BeginFunc func(ctx context.Context) (context.Context, AnyTx, error)

// BeginWith is [Adapter.Begin] for the adapter of a framework: begin begins the transaction, unless
// ctx carries a transaction of the same pool.
func (a *Adapter) BeginWith(ctx context.Context, begin BeginFunc) (context.Context, outbox.Transaction, error) {
	txCtx, l, err := a.beginLevel(ctx, begin)
	if err != nil {
		return nil, nil, err
	}
	return txCtx, l, nil
}

func (a *Adapter) plain(opts *sql.TxOptions) BeginFunc {
	return func(ctx context.Context) (context.Context, AnyTx, error) {
		asking := &beginContext{Context: ctx}
		tx, err := a.db.BeginTx(asking, opts)
		if asking.begun != nil { // else a wrapper has replaced the context
			asking.begun.learn(above{source: a.source(), tx: tx, execer: tx})
		}
		return ctx, tx, err
	}
}

func (a *Adapter) beginLevel(ctx context.Context, begin BeginFunc) (context.Context, *level, error) {
	if outer, ok := a.open(ctx); ok {
		l, err := nest(ctx, outer)
		return ctx, l, err
	}
	txCtx, begun, err := begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx, err := a.find(ctx, begun)
	if err != nil {
		_ = begun.Rollback()
		return nil, nil, err
	}
	return outbox.ContextWithScope(txCtx, tx), &level{tx: tx, ctx: ctx, ends: begun}, nil
}

// open returns the innermost transaction in ctx that is still open.
func (a *Adapter) open(ctx context.Context) (*transaction, bool) {
	scope, _ := outbox.ScopeFromContext(ctx, a.source())
	tx, ok := scope.(*transaction)
	return tx, ok && !tx.Ended()
}

// TxFrom returns the transaction of the adapter's pool that ctx carries and that is still open.
func (a *Adapter) TxFrom(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := a.open(ctx)
	if !ok || tx.above.tx == nil {
		return nil, false
	}
	return tx.above.tx, true
}

// WithTx returns a context that carries a transaction which the caller has begun and will end, so
// that code below can write with only the outbox's writer, and [Adapter.RunInTx] makes savepoints
// in the transaction. WithTx takes the same types of transaction as [Adapter.Write], with the same
// errors; the transaction has to belong to a followed pool, even with the option [AllowUnmanaged].
func (a *Adapter) WithTx(ctx context.Context, tx AnyTx) (context.Context, error) {
	found, err := a.find(ctx, tx)
	if err != nil {
		return nil, err
	}
	if known, ok := a.open(ctx); ok && known == found {
		return ctx, nil
	}
	return outbox.ContextWithScope(ctx, found), nil
}

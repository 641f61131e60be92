package outboxpgx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// Begin implements [outbox.Transactor]: it begins a transaction, or a savepoint when ctx carries an
// open transaction of the same pool, and returns a context that carries the transaction. opts are
// for a transaction and may be nil. Callbacks have run when Commit or Rollback of the transaction
// returns. When ctx has ended, Commit rolls back and returns the context's error; once Commit has
// begun, ctx does not interrupt it.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	l := &level{ctx: ctx}
	var open *transaction
	var err error
	if outer, ok := a.open(ctx); ok {
		if err := errors.Join(ctx.Err(), outer.Refusal()); err != nil {
			return nil, nil, err
		}
		l.nested, open = true, outer.transaction
		if l.tx, err = outer.tx.Begin(context.WithoutCancel(ctx)); err != nil {
			return nil, nil, fmt.Errorf("outbox: opening a savepoint: %w", err)
		}
	} else {
		options, err := txOptions(opts)
		if err != nil {
			return nil, nil, err
		}
		if l.tx, err = a.pool.BeginTx(ctx, options); err != nil {
			return nil, nil, err
		}
		found, err := a.find(ctx, l.tx)
		if err != nil { // BeforeConnect has replaced the tracer
			_ = l.tx.Rollback(context.WithoutCancel(ctx))
			return nil, nil, err
		}
		open = found.transaction
	}
	l.scope = a.scope(open, l.tx)
	return outbox.ContextWithScope(ctx, l.scope), l, nil
}

func txOptions(opts *sql.TxOptions) (pgx.TxOptions, error) {
	var options pgx.TxOptions
	if opts == nil {
		return options, nil
	}
	switch opts.Isolation {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted:
		options.IsoLevel = pgx.ReadUncommitted
	case sql.LevelReadCommitted:
		options.IsoLevel = pgx.ReadCommitted
	case sql.LevelRepeatableRead, sql.LevelSnapshot:
		options.IsoLevel = pgx.RepeatableRead
	case sql.LevelSerializable:
		options.IsoLevel = pgx.Serializable
	case sql.LevelWriteCommitted, sql.LevelLinearizable:
		fallthrough
	default:
		return options, fmt.Errorf("outbox: PostgreSQL has no isolation level %s", opts.Isolation)
	}
	if opts.ReadOnly {
		options.AccessMode = pgx.ReadOnly
	}
	return options, nil
}

// open returns the innermost transaction in ctx that is still open.
func (a *Adapter) open(ctx context.Context) (*scope, bool) {
	found, _ := outbox.ScopeFromContext(ctx, a.db)
	s, ok := found.(*scope)
	return s, ok && !s.Ended()
}

// TxFrom returns the transaction of the adapter's pool that ctx carries and that is still open.
// [Adapter.Begin], and therefore [outbox.InTx], and [Adapter.WithTx] put a transaction there.
func (a *Adapter) TxFrom(ctx context.Context) (pgx.Tx, bool) {
	s, ok := a.open(ctx)
	if !ok {
		return nil, false
	}
	return s.tx, true
}

// WithTx returns a context that carries a transaction which the caller has begun and will end, so
// that code below finds the transaction with [Adapter.TxFrom], and can write with only the outbox's
// writer. The errors are the same as for [Adapter.Write]; the transaction has to be followed, even
// with the option [AllowUnmanaged].
func (a *Adapter) WithTx(ctx context.Context, tx pgx.Tx) (context.Context, error) {
	found, err := a.find(ctx, tx)
	if err != nil {
		return nil, err
	}
	return outbox.ContextWithScope(ctx, found), nil
}

// level is the transaction that [Adapter.Begin] opened, or a savepoint in a transaction.
type level struct {
	scope  *scope
	tx     pgx.Tx
	ctx    context.Context // the level ends with the context
	nested bool
	done   atomic.Bool
}

// Commit commits the transaction, or releases the savepoint. When the context of this level has
// ended, Commit rolls back and returns the context's error.
func (l *level) Commit() error {
	if !l.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if err := l.ctx.Err(); err != nil {
		if failed := l.end(pgx.Tx.Rollback); errors.Is(failed, sql.ErrTxDone) {
			return failed
		}
		return err
	}
	if !l.nested {
		return l.end(pgx.Tx.Commit)
	}
	if l.scope.Ended() {
		return sql.ErrTxDone
	}
	if l.tx.Conn().PgConn().TxStatus() == 'E' {
		// A statement failed and the error was ignored. Without the rollback, the transaction
		// around the savepoint could not go on.
		return errors.Join(fmt.Errorf("outbox: releasing a savepoint: %w", pgx.ErrTxCommitRollback), l.end(pgx.Tx.Rollback))
	}
	return l.end(pgx.Tx.Commit)
}

// Rollback rolls back the transaction, or the changes since the savepoint.
func (l *level) Rollback() error {
	if !l.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	err := l.end(pgx.Tx.Rollback)
	if err != nil && l.scope.Ended() && l.scope.outcome == txscope.RolledBack && !errors.Is(err, sql.ErrTxDone) {
		return nil // the connection is lost, and with it the transaction
	}
	return err
}

// end ends the level, even if the level's context has ended.
func (l *level) end(with func(pgx.Tx, context.Context) error) error {
	end := func() error { return with(l.tx, context.WithoutCancel(l.ctx)) }
	if l.nested {
		return txDone(end())
	}
	open := l.scope.transaction
	err := open.EndWith(func() error {
		err := end()
		if !open.Ended() { // the connection does not report to the tap
			open.outcome = txscope.Unknown
			open.Finish(l.ctx, txscope.Unknown, err)
		}
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrTxClosed):
		return sql.ErrTxDone
	case err != nil && open.outcome == txscope.Unknown:
		return fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, err)
	}
	return err
}

// txDone returns the error of database/sql for a transaction that is over.
func txDone(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return sql.ErrTxDone
	}
	return err
}

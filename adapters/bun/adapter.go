package outboxbun

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/fielderr"
	"github.com/outboxkit/outbox-go/outbox"
)

// Adapter writes events in transactions of a single db. It is safe for concurrent use.
type Adapter struct {
	db  *bun.DB
	sql *sqltx.Adapter
}

var _ outbox.Transactor = (*Adapter)(nil)

// Option changes an adapter.
type Option = sqltx.Option

// AllowUnmanaged is [sqltx.AllowUnmanaged].
func AllowUnmanaged() Option { return sqltx.AllowUnmanaged() }

// New makes the adapter of a db on a followed pool, from [sqltx.Open] or [sqltx.Watch], and of the
// writer for that pool. New fails with a [*outbox.FieldError] when db or writer is nil, the pool is
// not followed, or the writer is for another pool.
func New(db *bun.DB, writer *outbox.Writer, opts ...Option) (*Adapter, error) {
	var pool *sql.DB
	if db != nil {
		pool = db.DB
	}
	a, err := sqltx.New(pool, writer, opts...)
	if err != nil {
		return nil, fielderr.Rename(err, "sqltx.New", "outboxbun.New")
	}
	return &Adapter{db: db, sql: a}, nil
}

// Write writes an event in the transaction, a [bun.Tx], and returns the id of the event; "" and no
// error when a hook suppressed the event. The errors are the same as for [sqltx.Adapter.Write]; for
// a value that is no transaction, such as the *bun.DB, the error is [outbox.ErrNoTransaction].
func (a *Adapter) Write(ctx context.Context, tx bun.IDB, env outbox.Envelope) (string, error) {
	plain, err := sqlTx(tx)
	if err != nil {
		return "", err
	}
	return a.sql.Write(ctx, plain, env)
}

// WriteAll writes events in the transaction, all or nothing, and returns their ids in order. The
// errors are the same as for [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx bun.IDB, envs []outbox.Envelope) ([]string, error) {
	plain, err := sqlTx(tx)
	if err != nil {
		return nil, err
	}
	return a.sql.WriteAll(ctx, plain, envs)
}

// sqlTx returns the *sql.Tx in a bun.Tx. bun's own ExecContext would format the question marks of
// the store's statements.
func sqlTx(tx bun.IDB) (*sql.Tx, error) {
	var plain *sql.Tx
	switch tx := tx.(type) {
	case nil:
	case bun.Tx:
		plain = tx.Tx
	case *bun.Tx:
		if tx != nil {
			plain = tx.Tx
		}
	case *bun.DB, bun.Conn, *bun.Conn:
		return nil, fmt.Errorf("%w: a %T is none; pass the bun.Tx that RunInTx or BeginTx gave", outbox.ErrNoTransaction, tx)
	default:
		return nil, fmt.Errorf("%w: a %T is not a bun.Tx; pass the bun.Tx inside it", outbox.ErrUnmanagedTransaction, tx)
	}
	if plain == nil {
		return nil, fmt.Errorf("%w: the bun.Tx is nil or empty", outbox.ErrNoTransaction)
	}
	return plain, nil
}

// AfterCommit is [sqltx.Adapter.AfterCommit]: fn runs once after the transaction has committed.
func (a *Adapter) AfterCommit(ctx context.Context, tx bun.IDB, fn func(ctx context.Context)) error {
	plain, err := sqlTx(tx)
	if err != nil {
		return err
	}
	return a.sql.AfterCommit(ctx, plain, fn)
}

// AfterRollback is [sqltx.Adapter.AfterRollback]: fn runs once after the transaction, or the savepoint
// under which AfterRollback was called, was rolled back.
func (a *Adapter) AfterRollback(ctx context.Context, tx bun.IDB, fn func(ctx context.Context, cause error)) error {
	plain, err := sqlTx(tx)
	if err != nil {
		return err
	}
	return a.sql.AfterRollback(ctx, plain, fn)
}

// Complete marks the event that is being delivered as delivered, in the listener's
// own transaction: see [outbox.Writer.Complete]. ctx is the listener's.
func (a *Adapter) Complete(ctx context.Context, tx bun.IDB) error {
	plain, err := sqlTx(tx)
	if err != nil {
		return err
	}
	return a.sql.Complete(ctx, plain)
}

// Handle makes a listener of a function that runs in a separate transaction, and marks the event as
// delivered in the same transaction: see [sqltx.Adapter.Handle].
func (a *Adapter) Handle(fn func(ctx context.Context, tx bun.Tx, env outbox.Envelope) error) outbox.Listener {
	return sqltx.HandleWith(a, a.TxFrom, func(ctx context.Context, tx bun.Tx) error { return a.Complete(ctx, tx) }, fn)
}

// Begin implements [outbox.Transactor]: it begins a transaction, or a savepoint when ctx carries an
// open transaction of the same db, and returns a context that carries the transaction. Callbacks
// have run when Commit or Rollback of the transaction returns.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return a.sql.BeginWith(ctx, func(ctx context.Context) (context.Context, sqltx.AnyTx, error) {
		tx, err := a.db.BeginTx(ctx, opts)
		return context.WithValue(ctx, txKey{a}, tx), tx, err
	})
}

// txKey finds an adapter's bun.Tx in a context.
type txKey struct{ a *Adapter }

// TxFrom returns the innermost transaction of the adapter's db that ctx carries and that is still
// open. [Adapter.Begin], and therefore [outbox.InTx], and [Adapter.WithTx] put a transaction there.
func (a *Adapter) TxFrom(ctx context.Context) (bun.Tx, bool) {
	tx, _ := ctx.Value(txKey{a}).(bun.Tx)
	open, ok := a.sql.TxFrom(ctx)
	if !ok || open != tx.Tx {
		return bun.Tx{}, false
	}
	return tx, true
}

// WithTx returns a context that carries a transaction which the caller has begun and will end, so
// that code below finds the transaction with [Adapter.TxFrom], and can write with only the outbox's
// writer. The errors are the same as for [Adapter.Write].
func (a *Adapter) WithTx(ctx context.Context, tx bun.Tx) (context.Context, error) {
	plain, err := sqlTx(tx)
	if err != nil {
		return nil, err
	}
	if ctx, err = a.sql.WithTx(ctx, plain); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, txKey{a}, tx), nil
}

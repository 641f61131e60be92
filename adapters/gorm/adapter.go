package outboxgorm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/fielderr"
	"github.com/outboxkit/outbox-go/outbox"
)

// ErrDryRun is the error of a write in a session with DryRun. Such a session runs model hooks but
// sends no statement: the event would report a change that never happened.
var ErrDryRun = errors.New("outbox: no event is written in a DryRun session")

// Adapter writes events in GORM's transactions on a single pool. It is safe for concurrent use.
type Adapter struct {
	db  *gorm.DB
	sql *sqltx.Adapter
}

var _ outbox.Transactor = (*Adapter)(nil)

// Option changes an adapter.
type Option = sqltx.Option

// AllowUnmanaged is [sqltx.AllowUnmanaged].
func AllowUnmanaged() Option { return sqltx.AllowUnmanaged() }

// New makes the adapter of a handle on a followed pool, from [sqltx.Open] or [sqltx.Watch], or with
// the [Plugin], and of the writer for that pool. New fails with a [*outbox.FieldError] when db or
// writer is nil, the pool is not followed, or the writer is for another pool.
func New(db *gorm.DB, writer *outbox.Writer, opts ...Option) (*Adapter, error) {
	if err := check(db); err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("outboxgorm.New: finding the *sql.DB of the handle: %w", err)
	}
	a, err := sqltx.New(pool, writer, opts...)
	if err != nil {
		return nil, fielderr.Rename(err, "sqltx.New", "outboxgorm.New")
	}
	// A session with a separate statement: the caller may go on with the handle.
	db = db.Session(&gorm.Session{NewDB: true, Context: context.Background()})
	return &Adapter{db: db, sql: a}, nil
}

func check(db *gorm.DB) error {
	if !opened(db) {
		return &outbox.FieldError{Field: "outboxgorm.New db", Problem: "is nil or was not made by gorm.Open"}
	}
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); ok {
		return &outbox.FieldError{Field: "outboxgorm.New db", Problem: "is a transaction; give the *gorm.DB that transactions are begun on"}
	}
	return nil
}

func opened(db *gorm.DB) bool { return db != nil && db.Config != nil && db.Statement != nil }

// Write writes an event in the transaction that tx is in and returns the id of the event; "" and no
// error when a hook suppressed the event. The insert does not go through GORM. The errors are the
// same as for [sqltx.Adapter.Write], and [ErrDryRun], and tx.Error.
func (a *Adapter) Write(ctx context.Context, tx *gorm.DB, env outbox.Envelope) (string, error) {
	plain, err := transaction(tx)
	if err != nil {
		return "", err
	}
	return a.sql.Write(ctx, plain, env)
}

// WriteAll writes events in the transaction that tx is in, all or nothing, and returns their ids in
// order. The errors are the same as for [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx *gorm.DB, envs []outbox.Envelope) ([]string, error) {
	plain, err := transaction(tx)
	if err != nil {
		return nil, err
	}
	return a.sql.WriteAll(ctx, plain, envs)
}

// transaction returns the *sql.Tx below a handle, or the value that another plugin has put in its
// place.
func transaction(db *gorm.DB) (sqltx.AnyTx, error) {
	switch {
	case !opened(db):
		return nil, fmt.Errorf("%w: the *gorm.DB is nil or was not made by gorm.Open", outbox.ErrNoTransaction)
	case db.DryRun:
		return nil, ErrDryRun
	}
	connPool := db.Statement.ConnPool
	if prepared, ok := connPool.(*gorm.PreparedStmtTX); ok && prepared != nil {
		connPool = prepared.Tx
	}
	tx, ok := connPool.(sqltx.AnyTx)
	switch {
	case db.Error != nil && !ok: // such as the error of a BEGIN
		return nil, fmt.Errorf("%w: the *gorm.DB has an error: %w", outbox.ErrNoTransaction, db.Error)
	case db.Error != nil: // GORM runs no statement on such a handle either
		return nil, fmt.Errorf("outbox: nothing is written with a *gorm.DB that has an error: %w", db.Error)
	case ok:
		return tx, nil
	case hadTransaction(db):
		return nil, fmt.Errorf("%w: GORM has ended the transaction that it began for this statement; "+
			`register the callback .Before("gorm:commit_or_rollback_transaction") too`, outbox.ErrNoTransaction)
	case db.SkipDefaultTransaction:
		return nil, fmt.Errorf("%w: the *gorm.DB is not in one, and in a model hook there is none either "+
			"as SkipDefaultTransaction is set; begin one with Transaction or Begin", outbox.ErrNoTransaction)
	}
	return nil, fmt.Errorf("%w: the *gorm.DB is not in one; write with the *gorm.DB that Transaction, Begin or a model hook gives", outbox.ErrNoTransaction)
}

// hadTransaction reports whether GORM began a transaction for the handle's statement.
func hadTransaction(db *gorm.DB) bool {
	_, began := db.InstanceGet("gorm:started_transaction")
	return began
}

// AfterCommit is [sqltx.Adapter.AfterCommit]: fn runs once after the transaction has committed.
func (a *Adapter) AfterCommit(ctx context.Context, tx *gorm.DB, fn func(ctx context.Context)) error {
	plain, err := transaction(tx)
	if err != nil {
		return err
	}
	return a.sql.AfterCommit(ctx, plain, fn)
}

// AfterRollback is [sqltx.Adapter.AfterRollback]: fn runs once after the transaction, or the savepoint
// under which AfterRollback was called, was rolled back.
func (a *Adapter) AfterRollback(ctx context.Context, tx *gorm.DB, fn func(ctx context.Context, cause error)) error {
	plain, err := transaction(tx)
	if err != nil {
		return err
	}
	return a.sql.AfterRollback(ctx, plain, fn)
}

// Complete marks the event that is being delivered as delivered, in the listener's
// own transaction: see [outbox.Writer.Complete]. ctx is the listener's.
func (a *Adapter) Complete(ctx context.Context, tx *gorm.DB) error {
	plain, err := transaction(tx)
	if err != nil {
		return err
	}
	return a.sql.Complete(ctx, plain)
}

// Handle makes a listener of a function that runs in a separate transaction, and marks the event as
// delivered in the same transaction: see [sqltx.Adapter.Handle].
func (a *Adapter) Handle(fn func(ctx context.Context, tx *gorm.DB, env outbox.Envelope) error) outbox.Listener {
	return sqltx.HandleWith(a, a.TxFrom, a.Complete, fn)
}

// Begin implements [outbox.Transactor]: it begins a transaction, or a savepoint when ctx carries an
// open transaction of the same pool, and returns a context that carries the transaction. Callbacks
// have run when Commit or Rollback of the transaction returns.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return a.sql.BeginWith(ctx, func(ctx context.Context) (context.Context, sqltx.AnyTx, error) {
		db := a.db.Session(&gorm.Session{NewDB: true, Context: ctx}).Begin(opts)
		if db.Error != nil {
			return nil, nil, db.Error
		}
		tx, err := transaction(db)
		if err != nil {
			db.Rollback()
		}
		return context.WithValue(ctx, txKey{a}, db), tx, err
	})
}

// txKey finds an adapter's *gorm.DB in a context.
type txKey struct{ a *Adapter }

// TxFrom returns the innermost transaction of the adapter's pool that ctx carries and that is still
// open, as a handle whose statements run with ctx. [Adapter.Begin], and therefore [outbox.InTx],
// and [Adapter.WithTx] put a transaction there.
func (a *Adapter) TxFrom(ctx context.Context) (*gorm.DB, bool) {
	db, _ := ctx.Value(txKey{a}).(*gorm.DB)
	open, ok := a.sql.TxFrom(ctx)
	if !ok || db == nil {
		return nil, false
	}
	if tx, err := transaction(db); err == nil && tx != sqltx.AnyTx(open) {
		return nil, false
	}
	return db.WithContext(ctx), true
}

// WithTx returns a context that carries the transaction that db is in, for code below that has no
// *gorm.DB: the outbox's writer writes in the transaction, [Adapter.TxFrom] finds it, and
// [Adapter.Begin] makes a savepoint in it. The errors are the same as for [Adapter.Write].
func (a *Adapter) WithTx(ctx context.Context, db *gorm.DB) (context.Context, error) {
	tx, err := transaction(db)
	if err != nil {
		return nil, err
	}
	if ctx, err = a.sql.WithTx(ctx, tx); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, txKey{a}, db), nil
}

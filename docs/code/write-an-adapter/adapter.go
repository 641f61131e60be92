// Package outboxsqlx writes events in transactions of sqlx. Code gets the transactions that
// it begins as *sqlx.Tx.
package outboxsqlx

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// Adapter writes events in transactions of a single db. An Adapter is safe for concurrent use.
type Adapter struct {
	db  *sqlx.DB
	sql *sqltx.Adapter
}

var _ outbox.Transactor = (*Adapter)(nil)

// New makes the adapter of a db on a followed pool, from [sqltx.Open] or [sqltx.Watch], and
// of the writer for that pool.
func New(db *sqlx.DB, writer *outbox.Writer, opts ...sqltx.Option) (*Adapter, error) {
	var pool *sql.DB
	if db != nil {
		pool = db.DB
	}
	a, err := sqltx.New(pool, writer, opts...)
	if err != nil {
		return nil, fmt.Errorf("outboxsqlx.New: %w", err)
	}
	return &Adapter{db: db, sql: a}, nil
}

// Write writes an event in the transaction and returns the id of the event. Errors are the errors
// of [sqltx.Adapter.Write].
func (a *Adapter) Write(ctx context.Context, tx *sqlx.Tx, env outbox.Envelope) (string, error) {
	return a.sql.Write(ctx, tx, env)
}

// WriteAll writes events in the transaction, either all events or no event, and returns the ids in
// order.
func (a *Adapter) WriteAll(ctx context.Context, tx *sqlx.Tx, envs []outbox.Envelope) ([]string, error) {
	return a.sql.WriteAll(ctx, tx, envs)
}

// AfterCommit runs fn after the transaction has committed.
func (a *Adapter) AfterCommit(ctx context.Context, tx *sqlx.Tx, fn func(ctx context.Context)) error {
	return a.sql.AfterCommit(ctx, tx, fn)
}

// AfterRollback runs fn after the transaction was rolled back.
func (a *Adapter) AfterRollback(ctx context.Context, tx *sqlx.Tx, fn func(ctx context.Context, cause error)) error {
	return a.sql.AfterRollback(ctx, tx, fn)
}

// Begin implements [outbox.Transactor]: a transaction, or a savepoint when ctx carries an
// open transaction of the same db, and a context that carries it.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return a.sql.BeginWith(ctx, func(ctx context.Context) (context.Context, sqltx.AnyTx, error) {
		tx, err := a.db.BeginTxx(ctx, opts)
		if err != nil {
			return ctx, nil, err
		}
		return context.WithValue(ctx, txKey{a}, tx), tx, nil
	})
}

// txKey finds an adapter's transaction in a context.
type txKey struct{ a *Adapter }

// TxFrom is the transaction of the adapter's db that ctx carries and that is still open.
func (a *Adapter) TxFrom(ctx context.Context) (*sqlx.Tx, bool) {
	tx, _ := ctx.Value(txKey{a}).(*sqlx.Tx)
	open, ok := a.sql.TxFrom(ctx)
	if !ok || tx == nil || open != tx.Tx {
		return nil, false
	}
	return tx, true
}

// WithTx returns a context that carries a transaction which the caller has begun and will end.
// Errors are the errors of [Adapter.Write].
func (a *Adapter) WithTx(ctx context.Context, tx *sqlx.Tx) (context.Context, error) {
	ctx, err := a.sql.WithTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, txKey{a}, tx), nil
}

// Complete marks the event that is being delivered as delivered, in the listener's own
// transaction. ctx is the listener's.
func (a *Adapter) Complete(ctx context.Context, tx *sqlx.Tx) error { return a.sql.Complete(ctx, tx) }

// Handle makes a listener of a function that runs in a separate transaction, which also stores the
// event's end.
func (a *Adapter) Handle(fn func(ctx context.Context, tx *sqlx.Tx, env outbox.Envelope) error) outbox.Listener {
	return sqltx.HandleWith(a, a.TxFrom, a.Complete, fn)
}

package outboxpgx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// Write writes an event in the transaction and returns the id of the event; "" and no error when a
// hook suppressed the event. Whoever began the transaction, it has to be a transaction of the
// adapter's pool, or of a connection made with the pool's configuration. Errors are
// [outbox.ErrNoTransaction] for a transaction that is over, [outbox.ErrForeignTransaction] for a
// transaction of another pool, [outbox.ErrUnmanagedTransaction] for a transaction of a connection
// that is not followed, without the option [AllowUnmanaged], and [outbox.ErrInvalidEnvelope].
func (a *Adapter) Write(ctx context.Context, tx pgx.Tx, env outbox.Envelope) (string, error) {
	ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{env})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// WriteAll writes events in the transaction, all or nothing, and returns their ids in order. The
// errors are the same as for [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx pgx.Tx, envs []outbox.Envelope) ([]string, error) {
	found, err := a.find(ctx, tx)
	if a.allowUnmanaged && errors.Is(err, outbox.ErrUnmanagedTransaction) {
		return a.writer.WriteUnmanaged(ctx, execer{tx}, envs)
	}
	if err != nil {
		return nil, err
	}
	return a.writer.WriteScope(ctx, found, envs)
}

// AfterCommit runs fn once after the transaction is known to have committed and the connection went back
// to the pool. If the process dies before, fn never runs: an event is for work that must not get lost.
//
// The functions of a transaction run in the order in which they were registered. If the adapter ends the
// transaction, as [outbox.InTx] does, they have run when that call returns; else they run soon after, on a
// goroutine of their own. The context of fn does not end, and a panic of fn is logged. fn does not run if
// the savepoint under which AfterCommit was called is rolled back. The errors are the same as for
// [Adapter.Write], and [outbox.ErrUnmanagedTransaction] even with the option [AllowUnmanaged].
func (a *Adapter) AfterCommit(ctx context.Context, tx pgx.Tx, fn func(ctx context.Context)) error {
	if fn == nil {
		return &outbox.FieldError{Field: "AfterCommit fn", Problem: "is nil"}
	}
	found, err := a.find(ctx, tx)
	if err != nil {
		return err
	}
	return found.AfterCommit(fn)
}

// AfterRollback runs fn once after the transaction, or the savepoint under which AfterRollback was
// called, was rolled back. The cause is nil, the error that led to the rollback, or an error for which
// errors.Is(cause, [outbox.ErrOutcomeUnknown]) holds: the transaction may have committed. The rest is as
// for [Adapter.AfterCommit].
func (a *Adapter) AfterRollback(ctx context.Context, tx pgx.Tx, fn func(ctx context.Context, cause error)) error {
	if fn == nil {
		return &outbox.FieldError{Field: "AfterRollback fn", Problem: "is nil"}
	}
	found, err := a.find(ctx, tx)
	if err != nil {
		return err
	}
	return found.AfterRollback(fn)
}

// Complete marks the event that is being delivered as delivered, in the listener's
// own transaction: see [outbox.Writer.Complete]. ctx is the listener's.
func (a *Adapter) Complete(ctx context.Context, tx pgx.Tx) error {
	found, err := a.find(ctx, tx)
	if err != nil {
		return err
	}
	return a.writer.Complete(ctx, found)
}

// Handle makes a listener of a function that runs in a separate transaction, and marks the event as
// delivered in the same transaction: the changes that fn makes through tx happen exactly once. An
// error or a panic of fn rolls back and is a failed delivery.
func (a *Adapter) Handle(fn func(ctx context.Context, tx pgx.Tx, env outbox.Envelope) error) outbox.Listener {
	return sqltx.HandleWith(a, a.TxFrom, a.Complete, fn)
}

// find finds the transaction on the connection of tx.
func (a *Adapter) find(ctx context.Context, tx pgx.Tx) (*scope, error) {
	if nilness.IsNil(tx) {
		return nil, fmt.Errorf("%w: the transaction is nil (%T)", outbox.ErrNoTransaction, tx)
	}
	pg := connection(tx)
	if pg == nil {
		return nil, errUnmanaged("it has no connection")
	}
	// The connection of a transaction that is over may be another caller's by now. Sending an empty
	// batch sends nothing, but fails if the transaction is over.
	if results := tx.SendBatch(ctx, &pgx.Batch{}); results != nil {
		if err := results.Close(); errors.Is(err, pgx.ErrTxClosed) {
			return nil, fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
		}
	}
	c, err := a.follows(pg)
	if err != nil {
		return nil, err
	}
	open := c.current()
	if open == nil {
		return nil, fmt.Errorf("%w: a statement has ended it", outbox.ErrNoTransaction)
	}
	c.watch()
	return a.scope(open, tx), nil
}

// connection returns the connection of a transaction, or nil. A mock has no connection: pgxmock's
// panics.
func connection(tx pgx.Tx) *pgx.Conn {
	defer func() { _ = recover() }()
	return tx.Conn()
}

// follows returns the tap's conn for a connection of the adapter's pool.
func (a *Adapter) follows(pg *pgx.Conn) (*conn, error) {
	c := connOf(pg)
	switch {
	case c == nil:
		return nil, errUnmanaged("open its pool with outboxpgx.Open, or call outboxpgx.Follow with the configuration")
	case c.pool != a.pool && (c.pool != nil || c.tap != a.tap):
		return nil, fmt.Errorf("%w: it was begun on another pool than the adapter's; write with the adapter of that one",
			outbox.ErrForeignTransaction)
	}
	return c, nil
}

func errUnmanaged(why string) error {
	return fmt.Errorf("%w: %s; or give the adapter the option AllowUnmanaged and let the poller deliver its events",
		outbox.ErrUnmanagedTransaction, why)
}

// scope is a transaction as the writer sees it, through a pgx.Tx: the transaction itself or a
// nested transaction.
type scope struct {
	*transaction
	execer
	source any
}

var (
	_ outbox.TxScope     = (*scope)(nil)
	_ outbox.TextQuerier = (*scope)(nil)
	_ outbox.TextQuerier = execer{}
)

func (a *Adapter) scope(tx *transaction, through pgx.Tx) *scope {
	return &scope{transaction: tx, execer: execer{through}, source: a.db}
}

// Source returns [DB] of the pool.
func (s *scope) Source() any { return s.source }

// ExecContext runs a statement in the pgx.Tx, unless the transaction is over.
func (s *scope) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := s.Refusal(); err != nil {
		return nil, err
	}
	result, err := s.execer.ExecContext(ctx, query, args...)
	if errors.Is(err, pgx.ErrTxClosed) {
		err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	return result, err
}

// QueryTexts runs a query in the pgx.Tx, unless the transaction is over.
func (s *scope) QueryTexts(ctx context.Context, query string, args ...any) ([]string, error) {
	if err := s.Refusal(); err != nil {
		return nil, err
	}
	texts, err := s.execer.QueryTexts(ctx, query, args...)
	if errors.Is(err, pgx.ErrTxClosed) {
		err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	return texts, err
}

// Execer makes a pgx.Tx usable for code that runs statements through database/sql's ExecContext,
// such as inbox.Once.
func Execer(tx pgx.Tx) outbox.Execer { return execer{tx} }

type execer struct{ tx pgx.Tx }

func (e execer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := e.tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (e execer) QueryTexts(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, err := e.tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

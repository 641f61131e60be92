package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// AnyTx is a *sql.Tx, a type that embeds a *sql.Tx, such as *sqlx.Tx, or a type that runs its
// statements in a *sql.Tx, such as ent's transaction.
type AnyTx interface {
	outbox.Execer
	Commit() error
	Rollback() error
}

// Write writes an event in the transaction and returns the id of the event; "" and no error when a
// hook suppressed the event. Whoever began the transaction, it has to be a transaction of the
// adapter's pool. Errors are [outbox.ErrNoTransaction] for a transaction that is over,
// [outbox.ErrForeignTransaction] for a transaction of another pool,
// [outbox.ErrUnmanagedTransaction] for a transaction of a pool that is not followed, without the
// option [AllowUnmanaged], and [outbox.ErrInvalidEnvelope].
func (a *Adapter) Write(ctx context.Context, tx AnyTx, env outbox.Envelope) (string, error) {
	ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{env})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// WriteAll writes events in the transaction, all or nothing, and returns their ids in order. The
// errors are the same as for [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx AnyTx, envs []outbox.Envelope) ([]string, error) {
	found, err := a.find(ctx, tx)
	if a.allowUnmanaged && errors.Is(err, outbox.ErrUnmanagedTransaction) {
		return a.writer.WriteUnmanaged(ctx, innermost(tx).execer, envs)
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
// transaction, as [Adapter.RunInTx] does, they have run when that call returns; else they run soon after, on a
// goroutine of their own. The context of fn does not end, and a panic of fn is logged. fn does not run if
// the savepoint under which AfterCommit was called is rolled back. The errors are the same as for
// [Adapter.Write], and [outbox.ErrUnmanagedTransaction] even with the option [AllowUnmanaged].
func (a *Adapter) AfterCommit(ctx context.Context, tx AnyTx, fn func(ctx context.Context)) error {
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
func (a *Adapter) AfterRollback(ctx context.Context, tx AnyTx, fn func(ctx context.Context, cause error)) error {
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
func (a *Adapter) Complete(ctx context.Context, tx AnyTx) error {
	found, err := a.find(ctx, tx)
	if err != nil {
		return err
	}
	return a.writer.Complete(ctx, found)
}

// Handle makes a listener of a function that runs in a separate transaction, and marks the event as
// delivered in the same transaction: the changes that fn makes through tx happen exactly once. An
// error or a panic of fn rolls back and is a failed delivery.
func (a *Adapter) Handle(fn func(ctx context.Context, tx *sql.Tx, env outbox.Envelope) error) outbox.Listener {
	return handleIn(
		func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
			return a.RunInTx(ctx, nil, work)
		},
		func(ctx context.Context, tx *sql.Tx) error { return a.Complete(ctx, tx) }, fn)
}

// HandleWith is [Adapter.Handle] for the adapter of a framework: t begins the transaction, from
// finds the framework's type of the transaction in the context, and complete marks the event in the
// transaction.
func HandleWith[Tx any](
	t outbox.Transactor, from func(ctx context.Context) (Tx, bool), complete func(ctx context.Context, tx Tx) error,
	fn func(ctx context.Context, tx Tx, env outbox.Envelope) error,
) outbox.Listener {
	return handleIn(func(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
		return outbox.InTx(ctx, t, func(ctx context.Context) error {
			tx, _ := from(ctx)
			return work(ctx, tx)
		})
	}, complete, fn)
}

// handleIn makes a listener of a function that runs in a transaction, in which the event is marked
// too.
func handleIn[Tx any](
	inTx func(ctx context.Context, work func(ctx context.Context, tx Tx) error) error, complete func(ctx context.Context, tx Tx) error,
	fn func(ctx context.Context, tx Tx, env outbox.Envelope) error,
) outbox.Listener {
	if fn == nil {
		return nil
	}
	return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		if err := outbox.AwaitTurn(ctx); err != nil {
			return err
		}
		return inTx(ctx, func(ctx context.Context, tx Tx) error {
			if err := fn(ctx, tx, env); err != nil {
				return err
			}
			return complete(ctx, tx)
		})
	})
}

// find finds the transaction among the known transactions, or asks the connection of tx.
func (a *Adapter) find(ctx context.Context, tx AnyTx) (*transaction, error) {
	if nilness.IsNil(tx) {
		return nil, fmt.Errorf("%w: the transaction is nil (%T)", outbox.ErrNoTransaction, tx)
	}
	asked := innermost(tx)
	if known, ok := a.connector.find(asked.tx); ok {
		return known, nil
	}
	asked.source = a.source()
	return ask(ctx, a.connector, asked)
}

// innermost returns the *sql.Tx that tx is or embeds, otherwise tx: the ExecContext of a library
// may rewrite the store's statements.
func innermost(tx AnyTx) above {
	if plain, ok := tx.(*sql.Tx); ok {
		return above{tx: plain, execer: plain}
	}
	v := reflect.ValueOf(tx)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		field, ok := v.Type().FieldByName("Tx")
		if ok && field.Anonymous && len(field.Index) == 1 {
			if plain, ok := v.Field(field.Index[0]).Interface().(*sql.Tx); ok && plain != nil {
				return above{tx: plain, execer: plain}
			}
		}
	}
	return above{execer: tx}
}

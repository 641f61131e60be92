package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// AnyTx is a *[Tx] or a plain *sql.Tx. Other types that have the methods are
// refused: hand over the *sql.Tx inside.
type AnyTx interface {
	outbox.Execer
	StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt
	Commit() error
	Rollback() error
}

// Write writes one event in the transaction and returns its id; "" and no error
// when a hook suppressed it. A plain *sql.Tx is the one inside a [Tx]; of any
// other the adapter cannot tell when it commits, which is
// [outbox.ErrUnmanagedTransaction] without the option [AllowUnmanaged]. Other
// errors are [outbox.ErrNoTransaction], [outbox.ErrForeignTransaction] for a
// transaction of another pool, and [outbox.ErrInvalidEnvelope].
func (a *Adapter) Write(ctx context.Context, tx AnyTx, env outbox.Envelope) (string, error) {
	ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{env})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// WriteAll writes events in the transaction, all or none, and returns their ids
// in order. Errors are those of [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx AnyTx, envs []outbox.Envelope) ([]string, error) {
	if a.err != nil {
		return nil, a.err
	}
	switch tx := tx.(type) {
	case nil:
		return nil, fmt.Errorf("%w: the transaction is nil", outbox.ErrNoTransaction)
	case *Tx:
		if tx == nil || tx.session == nil {
			return nil, fmt.Errorf("%w: the *sqltx.Tx is nil or was not made by an adapter", outbox.ErrNoTransaction)
		}
		if tx.done.Load() {
			return nil, fmt.Errorf("%w: it has ended", outbox.ErrNoTransaction)
		}
		return a.writer.WriteScope(ctx, tx.session.Scope(), envs)
	case *sql.Tx:
		return a.writePlain(ctx, tx, envs)
	default:
		return nil, fmt.Errorf("%w: a %T is neither a *sqltx.Tx nor a *sql.Tx; hand over the *sql.Tx inside it", outbox.ErrUnmanagedTransaction, tx)
	}
}

func (a *Adapter) writePlain(ctx context.Context, tx *sql.Tx, envs []outbox.Envelope) ([]string, error) {
	if tx == nil {
		return nil, fmt.Errorf("%w: the *sql.Tx is nil", outbox.ErrNoTransaction)
	}
	if s := sessions.find(tx); s != nil {
		return a.writer.WriteScope(ctx, s.Scope(), envs)
	}
	if a.allowUnmanaged {
		ids, err := a.writer.WriteUnmanaged(ctx, tx, envs)
		if errors.Is(err, sql.ErrTxDone) {
			err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
		}
		return ids, err
	}
	// A transaction that is over is not in the list any more. Which of the two
	// mistakes it is matters to who reads the error, and only now.
	if _, err := tx.ExecContext(ctx, "SELECT 1"); errors.Is(err, sql.ErrTxDone) {
		return nil, fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	return nil, fmt.Errorf("%w: begin it with RunInTx or BeginTx of the sqltx.Adapter, "+
		"or give sqltx.New the option AllowUnmanaged and let the poller deliver its events", outbox.ErrUnmanagedTransaction)
}

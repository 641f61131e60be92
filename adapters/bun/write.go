package outboxbun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/outbox"
)

// Write writes one event in the transaction, a [bun.Tx], and returns its id; ""
// and no error when a hook suppressed it. Errors are [outbox.ErrNoTransaction]
// for anything that is not an open transaction, such as the *bun.DB;
// [outbox.ErrUnmanagedTransaction] for a transaction that the query hook does
// not know, without the option [AllowUnmanaged]; [outbox.ErrForeignTransaction]
// for one of another db; and [outbox.ErrInvalidEnvelope].
func (a *Adapter) Write(ctx context.Context, tx bun.IDB, env outbox.Envelope) (string, error) {
	ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{env})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// WriteAll writes events in the transaction, all or none, and returns their ids
// in order. Errors are those of [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx bun.IDB, envs []outbox.Envelope) ([]string, error) {
	bunTx, err := transactionOf(tx)
	if err != nil {
		return nil, err
	}
	s := sessionOf(bunTx)
	if s == nil || !s.learn(bunTx) {
		return a.writeUnmanaged(ctx, bunTx, envs)
	}
	s.verify(ctx)
	return a.writer.WriteScope(ctx, s.Scope(), envs)
}

// transactionOf is the bun.Tx that a caller handed over.
func transactionOf(tx bun.IDB) (bun.Tx, error) {
	var bunTx bun.Tx
	switch tx := tx.(type) {
	case nil:
	case bun.Tx:
		bunTx = tx
	case *bun.Tx:
		if tx != nil {
			bunTx = *tx
		}
	case *bun.DB, bun.Conn, *bun.Conn:
		return bunTx, fmt.Errorf("%w: a %T is none; hand over the bun.Tx that RunInTx or BeginTx gave", outbox.ErrNoTransaction, tx)
	default:
		return bunTx, fmt.Errorf("%w: a %T is not a bun.Tx; hand over the bun.Tx inside it", outbox.ErrUnmanagedTransaction, tx)
	}
	if bunTx.Tx == nil {
		return bunTx, fmt.Errorf("%w: the bun.Tx is nil or empty", outbox.ErrNoTransaction)
	}
	return bunTx, nil
}

func (a *Adapter) writeUnmanaged(ctx context.Context, tx bun.Tx, envs []outbox.Envelope) ([]string, error) {
	if pool := poolOf(tx); pool != nil && pool != a.hook.source {
		return nil, outbox.ErrForeignTransaction
	}
	if a.allowUnmanaged && len(envs) > 0 {
		ids, err := a.writer.WriteUnmanaged(ctx, tx.Tx, envs)
		if err == nil || !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrInvalidEnvelope) {
			return ids, err
		}
	}
	// Which mistake it is matters to who reads the error.
	if _, err := tx.Tx.ExecContext(ctx, "SELECT 1"); errors.Is(err, sql.ErrTxDone) {
		return nil, fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	if a.allowUnmanaged {
		return a.writer.WriteUnmanaged(ctx, tx.Tx, envs)
	}
	return nil, fmt.Errorf("%w: begin it on the *bun.DB that outboxbun.Attach returned, "+
		"and give a nested one the context of its outer transaction; "+
		"or give outboxbun.New the option AllowUnmanaged and let the poller deliver its events", outbox.ErrUnmanagedTransaction)
}

// poolOf is the pool that the transaction was begun on; nil when it was put
// together by hand.
func poolOf(tx bun.Tx) (pool any) {
	defer func() { _ = recover() }() // it has no db
	return outbox.PoolOf(tx.NewSelect().DB().DB)
}

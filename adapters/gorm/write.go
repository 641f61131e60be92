package outboxgorm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/outbox"
)

// ErrDryRun is what writing in a session with DryRun fails with: such a session
// runs model hooks but sends no statement, so that an event would be written of
// something that never was.
var ErrDryRun = errors.New("outbox: no event is written in a DryRun session")

// Write writes one event in the transaction that tx is in and returns its id; ""
// and no error when a hook suppressed it. The insert goes past GORM's statement
// building: clauses, scopes and loggers of tx have no part in it. Errors are
// [outbox.ErrNoTransaction], [outbox.ErrForeignTransaction] for a transaction of
// another pool, [outbox.ErrUnmanagedTransaction] for one that the plugin did not
// see begin (see [AllowUnmanaged]), [ErrDryRun], [outbox.ErrInvalidEnvelope], and
// tx.Error when that is set, as after a statement on the same handle that failed.
func (a *Adapter) Write(ctx context.Context, tx *gorm.DB, env outbox.Envelope) (string, error) {
	ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{env})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// WriteAll writes events in the transaction that tx is in, all or none, and
// returns their ids in order. Errors are those of [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx *gorm.DB, envs []outbox.Envelope) ([]string, error) {
	connPool, err := handleOf(tx)
	if err != nil {
		return nil, err
	}
	if tx.DryRun {
		return nil, ErrDryRun
	}
	t := txOf(connPool)
	if t == nil {
		return a.writePlain(ctx, tx, envs)
	}
	if tx.Error != nil && t.scope().Active() {
		return nil, errHandle(tx)
	}
	return a.writer.WriteScope(ctx, t.scope(), envs)
}

// errHandle: GORM itself runs no statement on such a handle.
func errHandle(tx *gorm.DB) error {
	return fmt.Errorf("outbox: nothing is written with a *gorm.DB that has an error: %w", tx.Error)
}

func (a *Adapter) writePlain(ctx context.Context, tx *gorm.DB, envs []outbox.Envelope) ([]string, error) {
	plain := plainTx(tx.Statement.ConnPool)
	if plain == nil {
		return nil, errNoTransaction(tx)
	}
	if db, err := tx.DB(); err == nil && outbox.PoolOf(db) != a.source {
		return nil, outbox.ErrForeignTransaction
	}
	if !a.allowUnmanaged {
		return nil, fmt.Errorf("%w: its *gorm.DB, on a %T, was made before db.Use(outboxgorm.Plugin()), by a plugin that was installed later, "+
			"or by db.Connection, for which there is outboxgorm.Connection; or give outboxgorm.New the option AllowUnmanaged "+
			"and let the poller deliver its events", outbox.ErrUnmanagedTransaction, plain)
	}
	if tx.Error != nil {
		return nil, errHandle(tx)
	}
	ids, err := a.writer.WriteUnmanaged(ctx, plain, envs)
	if errors.Is(err, sql.ErrTxDone) {
		err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	return ids, err
}

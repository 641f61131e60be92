package outboxbun

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/outbox"
)

// Cancel is [sqltx.Adapter.Cancel]: it deletes events that wait, in the transaction.
func (a *Adapter) Cancel(ctx context.Context, tx bun.IDB, which outbox.Waiting) (outbox.TakenBack, error) {
	plain, err := sqlTx(tx)
	if err != nil {
		return outbox.TakenBack{}, err
	}
	return a.sql.Cancel(ctx, plain, which)
}

// Reschedule is [sqltx.Adapter.Reschedule]: it makes events that wait due at another time, in the
// transaction.
func (a *Adapter) Reschedule(ctx context.Context, tx bun.IDB, which outbox.Waiting, at time.Time) (outbox.TakenBack, error) {
	plain, err := sqlTx(tx)
	if err != nil {
		return outbox.TakenBack{}, err
	}
	return a.sql.Reschedule(ctx, plain, which, at)
}

// Replace is [sqltx.Adapter.Replace]: it gives an event that waits another content, in the transaction.
func (a *Adapter) Replace(ctx context.Context, tx bun.IDB, eventID string, with outbox.Replacement) (outbox.TakenBack, error) {
	plain, err := sqlTx(tx)
	if err != nil {
		return outbox.TakenBack{}, err
	}
	return a.sql.Replace(ctx, plain, eventID, with)
}

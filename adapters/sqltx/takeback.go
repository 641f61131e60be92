package sqltx

import (
	"context"
	"errors"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Cancel deletes events that wait, in the transaction: see [outbox.Writer.Cancel]. The errors are the
// same as for [Adapter.Write], and a [*outbox.FieldError] for an invalid choice.
func (a *Adapter) Cancel(ctx context.Context, tx AnyTx, which outbox.Waiting) (outbox.TakenBack, error) {
	return a.change(ctx, tx, which, outbox.Change{Cancel: true})
}

// Reschedule makes events that wait due at another time, in the transaction: see
// [outbox.Writer.Reschedule]. The errors are the same as for [Adapter.Cancel].
func (a *Adapter) Reschedule(ctx context.Context, tx AnyTx, which outbox.Waiting, at time.Time) (outbox.TakenBack, error) {
	return a.change(ctx, tx, which, outbox.Change{AvailableAt: at})
}

// Replace gives an event that waits another content, in the transaction: see [outbox.Writer.Replace].
// The errors are the same as for [Adapter.Cancel].
func (a *Adapter) Replace(ctx context.Context, tx AnyTx, eventID string, with outbox.Replacement) (outbox.TakenBack, error) {
	return a.change(ctx, tx, outbox.Waiting{EventIDs: []string{eventID}}, with.Change())
}

func (a *Adapter) change(ctx context.Context, tx AnyTx, which outbox.Waiting, c outbox.Change) (outbox.TakenBack, error) {
	found, err := a.find(ctx, tx)
	if a.allowUnmanaged && errors.Is(err, outbox.ErrUnmanagedTransaction) {
		return a.writer.ChangeUnmanaged(ctx, innermost(tx).execer, which, c)
	}
	if err != nil {
		return outbox.TakenBack{}, err
	}
	return a.writer.ChangeScope(ctx, found, which, c)
}

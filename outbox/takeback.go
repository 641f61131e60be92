package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// Cancel deletes the events that wait, in the transaction that ctx carries: if the transaction
// commits, they are never delivered, and if it does not, they stay as they were. An event that a
// process has in hand is left alone, and so is an event that another transaction wrote and that was due as
// soon as it was committed: [TakenBack] counts them. A process that was stopped for longer than its lease
// may still have an event in hand that waits again meanwhile.
//
// The rows of the events are locked until the transaction ends, so an event that becomes due meanwhile
// waits for the end. The events that the transaction itself has written wait until it commits, unless the
// outbox does not see the end of the transaction.
//
// A row for one of several listeners of an event has an id of its own, not the id that Write returned; see
// [Named]. By Kind and AggregateID such rows are cancelled too.
//
// Errors are the same as for [Writer.Write] as far as they concern the transaction; an invalid choice,
// or a choice for which the store lacks the index, is a [FieldError].
func (w *Writer) Cancel(ctx context.Context, which Waiting) (TakenBack, error) {
	return w.change(ctx, which, Change{Cancel: true})
}

// Reschedule makes events that wait due at another time, earlier or later, in the transaction that ctx
// carries. A time that is over makes them due at once. The rest is as for [Writer.Cancel].
func (w *Writer) Reschedule(ctx context.Context, which Waiting, at time.Time) (TakenBack, error) {
	return w.change(ctx, which, Change{AvailableAt: at})
}

// Replace gives an event that waits another payload and other headers, and, if with.AvailableAt is
// set, another due time, in the transaction that ctx carries. The id, the kind, the aggregate id and the
// tenant of the event stay, and so does the listener of an event that is for one of several listeners. No
// BeforeWrite hook runs. The rest is as for [Writer.Cancel].
func (w *Writer) Replace(ctx context.Context, eventID string, with Replacement) (TakenBack, error) {
	return w.change(ctx, Waiting{EventIDs: []string{eventID}}, with.Change())
}

// Change is the replacement for [Writer.ChangeScope], with which adapters replace an event.
func (r Replacement) Change() Change {
	return Change{AvailableAt: r.AvailableAt, Content: &Envelope{Payload: r.Payload, Headers: r.Headers}}
}

func (w *Writer) change(ctx context.Context, which Waiting, c Change) (TakenBack, error) {
	scope, err := w.ambient(ctx)
	if err != nil {
		return TakenBack{}, err
	}
	return w.ChangeScope(ctx, scope, which, c)
}

// ChangeScope cancels, reschedules or replaces events that wait, in a scope that the caller, an
// adapter, has found; see [Writer.Cancel].
func (w *Writer) ChangeScope(ctx context.Context, scope TxScope, which Waiting, c Change) (TakenBack, error) {
	if err := w.usable(scope); err != nil {
		return TakenBack{}, err
	}
	which, err := which.seal(&c)
	if err != nil {
		return TakenBack{}, err
	}
	n, err := w.store.TakeBack(ctx, scope, which, c)
	if err == nil && n.InHand > 0 {
		err = w.changeOwn(ctx, scope, which, c, &n)
	}
	if err != nil || n.Changed == 0 {
		return n, err
	}
	due := c.AvailableAt
	if due.IsZero() {
		due = w.clock.Now()
	}
	if err := w.enlistChange(scope, c.Cancel, due); err != nil {
		return TakenBack{}, fmt.Errorf("outbox: the transaction ended while %d events were being changed: %w", n.Changed, err)
	}
	return n, nil
}

// changeOwn changes events that are due at once, and that the transaction itself has written: they are
// not in hand before the commit.
func (w *Writer) changeOwn(ctx context.Context, scope TxScope, which Waiting, c Change, n *TakenBack) error {
	writes := scope.Writes()
	ids := writes.idsOf(which.chooses)
	if len(ids) == 0 {
		return nil
	}
	writes.take(ids, 1) // before the change: a commit meanwhile leaves the events to the poller
	undo := func() { writes.take(ids, -1) }
	c.Uncommitted = true
	own, err := w.store.TakeBack(ctx, scope, Waiting{EventIDs: ids}, c)
	if err == nil && own.Changed > 0 {
		err = scope.AfterRollback(func(context.Context, error) { undo() }) // also to a savepoint
	}
	if err != nil || own.Changed == 0 {
		undo()
		return err
	}
	n.Changed, n.InHand = n.Changed+own.Changed, n.InHand-own.Changed
	return nil
}

// ChangeUnmanaged is ChangeScope in a transaction whose end the outbox does not see, as for
// [Writer.WriteUnmanaged].
func (w *Writer) ChangeUnmanaged(ctx context.Context, tx Execer, which Waiting, c Change) (TakenBack, error) {
	if nilness.IsNil(tx) {
		return TakenBack{}, ErrNoTransaction
	}
	which, err := which.seal(&c)
	if err != nil {
		return TakenBack{}, err
	}
	n, err := w.store.TakeBack(ctx, tx, which, c)
	if n.Changed > 0 {
		w.lookAgain()
	}
	return n, err
}

// enlistChange registers the work for the end of a transaction that cancelled events that wait, or changed
// them. The first of the changed events is due at due.
func (w *Writer) enlistChange(scope TxScope, cancelled bool, due time.Time) error {
	err := scope.AfterRollback(func(context.Context, error) { w.lookAgain() })
	if err == nil {
		err = scope.AtCommit(func() { w.changed(cancelled, due) })
	}
	return err
}

// changed makes pollers read the events of a committed transaction when they are due: the rows were
// locked until now. A cancelled event may have held back its key.
func (w *Writer) changed(cancelled bool, at time.Time) {
	if cancelled && w.poller != nil && !w.poller.readsRuns() {
		return
	}
	if w.poller != nil {
		w.poller.DueAt(at)
	}
	if !w.poller.delivers() || w.notifications.IsUnstarted() {
		w.notifications.Notify()
	}
}

package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Errors of [Writer.Complete].
var (
	// ErrNoDelivery: the context belongs to no delivery of this outbox that is
	// under way.
	ErrNoDelivery = errors.New("outbox: no delivery under way in the context")
	// ErrCompleted: the event was completed before in the same transaction.
	ErrCompleted = errors.New("outbox: the event is completed already")
	// ErrSeveralListeners: the delivery is to several listeners; see [Named].
	ErrSeveralListeners = errors.New("outbox: one of several listeners cannot complete the event")
)

// AwaitTurn waits until the event that is being delivered may be completed: in [Ordered]
// and [OrderedByKey] the outcomes of earlier events are stored first. [Writer.Complete]
// waits too, but on SQLite no outcome can be stored while the listener's transaction is open.
// So a listener that begins a transaction calls AwaitTurn before; the Handle of each adapter
// does. ctx is the context of the listener. With any other context, and in the other modes,
// AwaitTurn returns nil at once.
//
// After a second AwaitTurn fails. The listener returns the error: the event is then given
// back and delivered again, and no attempt is counted.
func AwaitTurn(ctx context.Context) error {
	c := deliveryOf(ctx)
	if c == nil {
		return nil
	}
	return c.d.awaitTurn(ctx, c.dl)
}

// turnTimeout is how long a listener's own transaction waits for the outcomes of the
// earlier events. On SQLite no outcome can be stored while the transaction is open.
const turnTimeout = time.Second

// awaitTurn waits until the outcomes of the earlier events, of the run or in [Ordered],
// are stored, so that the listener's own transaction does not complete its event before
// them. awaitTurn makes the completer store these outcomes at once.
func (d *dispatcher) awaitTurn(ctx context.Context, dl *delivery) error {
	if d.track.isTurn(dl) {
		return nil
	}
	d.completer.commit.StoreNow()
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	for !d.track.isTurn(dl) {
		if wait.Sleep(ctx, time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("outbox: completing event %s: %w", dl.id(), errTurn)
		}
	}
	return nil
}

// Complete marks the event that is being delivered as delivered, in a transaction
// of the listener: the writes of the listener and the end of the event are committed
// together or not at all, so the effect happens exactly once. ctx is the context of the
// listener. Adapters call Complete; their Handle does the whole sequence.
//
// After the commit the delivery is a success, whatever the listener returns. When
// the transaction has not committed as the listener returns, or the outcome of COMMIT is
// unknown, the delivery has failed: with the listener's error, or with an error that
// says so. The event is delivered again unless the row shows that it was completed.
//
// If an event has several listeners, a listener cannot complete the event, because the
// other listeners may fail; an inbox makes the effects happen exactly once. In the
// delivery of its own row a listener can complete that row.
//
// In [Ordered] and [OrderedByKey] Complete waits for the turn of the event, as [AwaitTurn] does.
//
// Complete fails with [ErrNoDelivery], [ErrCompleted], [ErrSeveralListeners],
// [ErrForeignTransaction], [ErrNoTransaction], and with [ErrLeaseLost] when another
// process has delivered the event or leased it meanwhile: roll back then.
func (w *Writer) Complete(ctx context.Context, scope TxScope) error {
	if err := w.usable(scope); err != nil {
		return err
	}
	c := deliveryOf(ctx)
	d := w.deliverer(c)
	switch {
	case ctx.Value(batchKey{}) != nil:
		return fmt.Errorf("%w: a batch listener gets many events; record each event in an inbox in its transaction instead", ErrNoDelivery)
	case c == nil:
		return fmt.Errorf("%w; give Complete the context that the listener got, or one made from it", ErrNoDelivery)
	case d == nil:
		return fmt.Errorf("%w: the delivery is another outbox's; use an inbox for effects in another database", ErrNoDelivery)
	}
	return d.complete(ctx, w.store, scope, c.dl)
}

// deliverer is the dispatcher of a delivery, if the dispatcher delivers for the writer's outbox, also
// in a Drain; else nil.
func (w *Writer) deliverer(c *deliveryContext) *dispatcher {
	if c == nil || w.poller == nil {
		return nil
	}
	d, _ := c.d.(*dispatcher)
	if own := w.poller.dispatcher; d == nil || d != own && d.drainOf != own {
		return nil
	}
	return d
}

// complete completes a delivery in the listener's transaction.
func (d *dispatcher) complete(ctx context.Context, store Store, scope TxScope, dl *delivery) error {
	if err := d.awaitTurn(ctx, dl); err != nil {
		return err
	}
	done := &completion{scope: scope}
	mark, before, err := d.track.beginCompletion(dl, done)
	if err != nil {
		return err
	}
	marked, err := store.Complete(ctx, scope, d.rulesOf(dl).done(), mark)
	if err == nil && marked {
		return errors.Join(
			scope.AfterRollback(func(context.Context, error) { d.track.rolledBack(done) }),
			scope.AtCommit(func() { d.track.committed(done) }),
		)
	}
	d.track.undoCompletion(dl, before)
	switch {
	case err != nil:
		return err // names the event
	case before != nil && before.scope.Active():
		err = ErrCompleted
	default:
		err = ErrLeaseLost
	}
	return fmt.Errorf("outbox: completing event %s: %w", mark.EventID, err)
}

// beginCompletion notes that a transaction marks the delivery's event. The row is
// then locked, so the lease is not renewed. before is the completion that was noted
// earlier: of a transaction that rolled back, or of the same transaction.
func (t *tracker) beginCompletion(dl *delivery, c *completion) (m Mark, before *completion, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = dl.completion
	switch {
	case dl.answered:
		return Mark{}, nil, fmt.Errorf("%w: the listener has returned", ErrNoDelivery)
	case dl.answers != nil && dl.answers.of > 1:
		return Mark{}, nil, fmt.Errorf("%w (%s): the others may fail; let inbox.Once guard the effects of each", ErrSeveralListeners, dl.id())
	case before != nil && before.committed:
		return Mark{}, nil, fmt.Errorf("%w (%s)", ErrCompleted, dl.id())
	}
	dl.completion = c
	return dl.mark(), before, nil
}

func (t *tracker) undoCompletion(dl *delivery, before *completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dl.completion = before
}

// rolledBack notes that the row is not locked any more: the lease is renewed again.
func (t *tracker) rolledBack(c *completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.over = true
}

func (t *tracker) committed(c *completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.committed = true
}

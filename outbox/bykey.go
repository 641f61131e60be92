package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// options takes the mode's options apart and reports the invalid options.
func (m OrderedByKey) options(b *builder, v *validator) {
	b.dispatch, b.poll, b.claim, b.byKey = &m.Dispatch, &m.Poll, &m.Claim, &m
	if m.Dispatch.HotCapacity != 0 {
		v.add("Mode.Dispatch.HotCapacity", fmt.Sprintf("is %d, but OrderedByKey has no hot queue; leave it out", m.Dispatch.HotCapacity))
	}
	if len(m.Dispatch.Limits) > 0 {
		v.add("Mode.Dispatch.Limits", fmt.Sprintf("has %d limits, but in OrderedByKey a worker delivers the events of a key, whatever their kinds; leave them out", len(m.Dispatch.Limits)))
	}
	if m.Claim.TenantsInTurn {
		v.add("Mode.Claim.TenantsInTurn", "is set, but OrderedByKey claims key after key, whatever their tenants; leave it out, or take MultiNode")
	}
	if m.OnDead > SkipDead {
		v.add("Mode.OnDead", "is not one of outbox.BlockKey and outbox.SkipDead")
	}
	length := validator{what: v.what}
	length.count("Mode.RunLength", m.RunLength, maxRunLength)
	v.errs = append(v.errs, length.errs...)
	if _, can := b.Store.(RunReader); b.Store != nil && !can {
		v.add("Store", fmt.Sprintf("is a %T, which has no ReadRuns, so it cannot deliver by key; take one from package sqlstore, or another mode", b.Store))
	}
	m.RunLength = defaultTo(m.RunLength, defaultRunLength)
}

// requireAggregateID is the check of [OrderedByKey].RequireKey.
func requireAggregateID(env *Envelope) error {
	if env.AggregateID != "" {
		return nil
	}
	return &FieldError{Field: "Envelope.AggregateID", Problem: "is empty, but OrderedByKey.RequireKey is set; give the id of what the event is about, or leave RequireKey out for events without an order"}
}

// follow returns the event after a delivered event of a run, if the next event is for
// this goroutine. Otherwise another goroutine goes on with the run, or the run ends and
// the rest is given back.
func (d *dispatcher) follow(dl *delivery) *delivery {
	next := dl.behind
	if next == nil {
		return nil
	}
	if !dl.outcome.delivered() || !d.mayFollow(next) {
		d.letGo(next.rest()...)
		return nil
	}
	switch b := d.batcherFor(next.env); {
	case b == dl.batcher || isClosed(d.quit): // draining, no batch waits for more events
		next.batcher = b
		return next
	case b != nil: // no worker waits for a batch
		next.batcher = b
		b.take(next)
	case !d.push(d.found(next), next): // events that are in no batch are for the workers
		d.letGo(next.rest()...)
	}
	return nil
}

// mayFollow reports whether a worker may go on with the next event of a run; mayBegin
// then asks whether the delivery may begin. In a run that was taken over, an event may
// kill this process too, so each event waits until the outcomes before it are stored:
// then an event that kills the process is the first of the key, and the next takeover
// counts as an attempt.
func (d *dispatcher) mayFollow(next *delivery) bool {
	for next.takeover && !d.track.isTurn(next) && !isClosed(d.abort) {
		wait.Sleep(d.listenerCtx, time.Millisecond)
	}
	return !isClosed(d.abort)
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

// committedByKey makes the poller read the events of a committed transaction.
func (d *dispatcher) committedByKey(p *pending) {
	due := false
	for i := range p.envs {
		if env := &p.envs[i]; p.isDue(env) {
			due = true
		} else {
			d.dueAt(env.AvailableAt)
		}
	}
	if !due {
		return
	}
	d.poller.wroteRuns()
	if !d.isRunning() {
		d.notifications.Notify()
	}
}

func (d *dispatcher) isRunning() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.state == running
}

// storedAs is the outcome that the store gets. Under [OrderedByKey] a deferred event
// holds back the key, as a RETRY row does.
func (c *completer) storedAs(outcome Outcome) Outcome {
	if c.byKey && outcome == OutcomeDeferred {
		return OutcomeRetry
	}
	return outcome
}

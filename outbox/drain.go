package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Drain delivers at most n events of the events that are due when Drain begins, and returns. Drain
// serves functions and scheduled jobs, whose processes must do nothing between two requests: call
// Drain instead of Start, as often as you like. An event is delivered at most once in a Drain: a
// retry, and an event that a listener writes, wait for the next Drain. When Drain has returned,
// nothing of it runs any more: the outcomes are stored, and leases, ranges and the hold are given
// back. The error says if that failed.
//
// The end of ctx ends a Drain as Close with that context ends an outbox: events that wait are given
// back, and the context of the listeners ends. Drain then returns the error of ctx, beside a result
// that is valid. Drain also returns an error when the database fails several times in a row.
//
// The mode's rules hold. In [SingleNode] and [Ordered], Drain returns at once while another process
// holds the table; in [MultiNode] and [OrderedByKey], processes share the events. Limits hold, also
// over the Drains of a process: Drain waits for the rate until ctx ends. Drain takes over events of
// processes that died, once their leases or ranges have expired. Drain does not purge; call
// [Outbox.Purge]. Drain notifies [Config].Notifier at the end and does not listen. [Outbox.Nodes] does
// not list a process for its Drain.
//
// One Drain runs at a time: meanwhile Drain, Start, Register and Deliver fail with [ErrDraining].
// Drain fails with a [FieldError] when no listener is registered, with [ErrStarted] after Start and with [ErrClosed] after Close, and Close ends a Drain
// under way. A listener must not call Drain.
func (o *Outbox) Drain(ctx context.Context, n int) (Drained, error) {
	if n < 1 {
		return Drained{}, &FieldError{Field: "Drain n", Problem: fmt.Sprintf("is %d; give the most events to deliver, at least 1", n)}
	}
	if o.dispatcher == nil {
		return Drained{}, errDeliversNothing
	}
	if o.registry != nil && o.registry.Len() == 0 {
		return Drained{}, &FieldError{Field: "Config.Registry", Problem: "has no listener, so there is nothing to deliver; register listeners before Drain"}
	}
	ended, err := o.beginDrain()
	if err != nil {
		return Drained{}, fmt.Errorf("outbox: draining: %w", err)
	}
	defer ended()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(o.ending, func() { cancel(ErrClosed) })()
	got, err := o.drain(ctx, n)
	if err != nil {
		return got, fmt.Errorf("outbox: draining: %w", err)
	}
	return got, nil
}

// errDeliversNothing is the answer of an outbox that only writes.
var errDeliversNothing = &FieldError{Field: "Config.Mode", Problem: "is WriterOnly, which delivers nothing; choose a mode that delivers"}

// beginDrain begins the only Drain; ended is called at its end.
func (o *Outbox) beginDrain() (ended func(), err error) {
	o.starting.Lock() // a Start decides first
	defer o.starting.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != created {
		return nil, o.state.problem()
	}
	o.state = draining
	o.drained = make(chan struct{})
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.state == draining { // not closed meanwhile
			o.state = created
		}
		close(o.drained)
	}, nil
}

// awaitDrain waits for the end of a Drain under way, which Close has ended.
func (o *Outbox) awaitDrain() {
	o.mu.Lock()
	drained := o.drained
	o.mu.Unlock()
	if drained != nil {
		<-drained
	}
}

// drain delivers through an engine of its own, which lives as long as the Drain.
func (o *Outbox) drain(ctx context.Context, n int) (Drained, error) {
	d := &drain{Metrics: o.metrics, n: n, due: storedTime(o.clock.Now()), ended: make(chan struct{})}
	if o.hold != nil && o.isHeld(ctx) {
		got := Drained{}
		return got, o.countLeft(ctx, &got)
	}
	engine := o.engineFor(d)
	err := engine.Start(ctx)
	if err == nil {
		select {
		case <-d.ended:
			err = d.err
		case <-ctx.Done():
		}
	} else if ctx.Err() == nil { // counting the events would fail for the same reason
		return Drained{}, errors.Join(err, engine.Close(ctx))
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	err = errors.Join(err, engine.Close(ctx))
	got := d.result()
	got.More = got.More || ctx.Err() != nil
	return got, errors.Join(err, o.countLeft(ctx, &got))
}

// isHeld reports whether another process holds the table. If the answer is an error, Start reports
// what is wrong.
func (o *Outbox) isHeld(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	list, err := o.store.Ranges(ctx, o.db)
	return err == nil && list.Holder() != ""
}

// engineFor makes the outbox of a Drain. It shares the pauses, the failures in a row, the
// keys, the kinds without a listener and the rates of this outbox.
func (o *Outbox) engineFor(d *drain) *Outbox {
	b := o.builder
	b.Metrics, b.drain = d, d
	engine := b.build()
	engine.purger = nil
	engine.dispatcher.pauses, engine.dispatcher.unheard = o.dispatcher.pauses, o.dispatcher.unheard
	engine.dispatcher.failures, engine.dispatcher.keys = o.dispatcher.failures, o.dispatcher.keys
	engine.dispatcher.rates, engine.dispatcher.drainOf = o.dispatcher.rates, o.dispatcher
	return engine
}

// drainPatience is how long counting what is left may take after the end of the Drain's context.
const drainPatience = 2 * time.Second

// countLeft counts the events that are due. The end of the Drain's context does not break off a count
// at once: the result is valid.
func (o *Outbox) countLeft(drain context.Context, got *Drained) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(drain), statementTimeout)
	defer cancel()
	defer context.AfterFunc(drain, func() {
		wait.Sleep(ctx, drainPatience)
		cancel()
	})()
	now := storedTime(o.clock.Now())
	st, err := o.store.Stats(ctx, o.db, now, nil)
	if err == nil {
		got.Left = int(st.Due)
		got.NextDue, err = o.store.NextDue(ctx, o.db, now)
	}
	if err == nil && got.Left > 0 && !got.More {
		err = o.countWaiting(ctx, now, got)
	}
	if err != nil {
		return fmt.Errorf("counting the events that are left: %w", err)
	}
	return nil
}

// countWaiting counts the events that are paused, and the events of other processes: under leases,
// in ranges, or all if a process holds the table.
func (o *Outbox) countWaiting(ctx context.Context, now time.Time, got *Drained) error {
	q := PollQuery{Now: now, Limit: StatsLimit, LeaseDuration: o.poller.leaseDuration()}
	reach, err := o.store.Reach(ctx, o.db, q)
	if err != nil {
		return err
	}
	free := reach.Fresh + reach.Expired
	got.Elsewhere = max(got.Left-free, 0)
	if q.Except = o.dispatcher.stays(); len(q.Except) > 0 {
		if reach, err = o.store.Reach(ctx, o.db, q); err != nil {
			return err
		}
		got.Paused = max(free-reach.Fresh-reach.Expired, 0) // the two readings are at different times
	}
	list, err := o.store.Ranges(ctx, o.db)
	if err != nil {
		return err
	}
	q.FreshOnly = true
	for _, r := range list.Ranges {
		if !list.lasts(r) {
			continue
		}
		q.After, q.Upto = r.After, r.Upto
		if reach, err = o.store.Reach(ctx, o.db, q); err != nil {
			return err
		}
		got.Elsewhere += reach.Fresh
	}
	return nil
}

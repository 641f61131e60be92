package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Drained is the result of [Outbox.Drain].
type Drained struct {
	// Done, Failed, Dead and Deferred count the outcomes that are stored, as the methods Delivered,
	// Failed, Died and Deferred of [Metrics] do: an event with several listeners may count more than
	// once.
	Done, Failed, Dead, Deferred int
	// More says that another Drain would go on at once: n events were taken, or the context ended.
	More bool
	// Left is how many events are due now, counted up to [StatsLimit]: events behind the first n,
	// events that became due meanwhile, and events that cannot be delivered now.
	Left int
	// Paused and Elsewhere say how many of Left are paused, and how many other processes have. They
	// are counted only if More is false. The other events of Left became due meanwhile, or wait
	// behind an event of their key in [OrderedByKey].
	Paused, Elsewhere int
	// NextDue is when the next delayed event or retry becomes due; zero: there is no such event.
	NextDue time.Time
}

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
// [Outbox.Purge]. [Config].Notifier is told at the end, and is not listened to.
//
// One Drain runs at a time: meanwhile Drain, Start, Register and Deliver fail with [ErrDraining].
// Drain fails with [ErrStarted] after Start and with [ErrClosed] after Close, and Close ends a Drain
// under way. A listener must not call Drain.
func (o *Outbox) Drain(ctx context.Context, n int) (Drained, error) {
	if n < 1 {
		return Drained{}, &FieldError{Field: "Drain n", Problem: fmt.Sprintf("is %d; give the most events to deliver, at least 1", n)}
	}
	if o.dispatcher == nil {
		return Drained{}, errDeliversNothing
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

// engineFor makes the outbox of a Drain. It shares the pauses and the rates of this outbox.
func (o *Outbox) engineFor(d *drain) *Outbox {
	b := o.builder
	b.Metrics, b.drain = d, d
	engine := b.build()
	engine.purger = nil
	engine.dispatcher.pauses = o.dispatcher.pauses
	engine.dispatcher.drainOf = o.dispatcher
	for kind, l := range engine.dispatcher.lanes {
		l.tokens = o.dispatcher.lanes[kind].tokens
	}
	return engine
}

// drainPatience is how long counting what is left may take after the end of the Drain's context.
const drainPatience = 2 * time.Second

// countLeft counts the events that are due.
func (o *Outbox) countLeft(ctx context.Context, got *Drained) error {
	limit := statementTimeout
	if ctx.Err() != nil {
		ctx, limit = context.WithoutCancel(ctx), drainPatience
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
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
	if q.Except = o.dispatcher.pauses.kinds(); len(q.Except) > 0 {
		if reach, err = o.store.Reach(ctx, o.db, q); err != nil {
			return err
		}
		got.Paused = free - reach.Fresh - reach.Expired
		free -= got.Paused
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

// drain is what an engine knows of the Drain that it serves, and counts the outcomes, as its
// metrics. A nil *drain is no Drain, for take, giveBack and room.
type drain struct {
	Metrics               // without the Close that it may have: the outbox closes its metrics
	n       int           // the most events
	due     time.Time     // the events that are due by then
	taken   atomic.Int64  // events that were taken in hand
	back    atomic.Int64  // of them, events that were given back
	ended   chan struct{} // closed: the poller has ended

	// These are valid when ended is closed.
	err  error
	more bool

	done, failed, dead, deferred atomic.Int64
}

// take notes events that are in hand.
func (d *drain) take(n int) {
	if d != nil {
		d.taken.Add(int64(n))
	}
}

// giveBack notes events that leave without an outcome.
func (d *drain) giveBack(n int) {
	if d != nil {
		d.back.Add(int64(n))
	}
}

// room is how many events of limit may still be taken.
func (d *drain) room(limit int) int {
	if d == nil {
		return limit
	}
	return min(limit, d.n-int(d.taken.Load()-d.back.Load()))
}

// Delivered implements [Metrics].
func (d *drain) Delivered(kind EventKind, latency time.Duration) {
	d.done.Add(1)
	d.Metrics.Delivered(kind, latency)
}

// Failed implements [Metrics].
func (d *drain) Failed(kind EventKind) {
	d.failed.Add(1)
	d.Metrics.Failed(kind)
}

// Died implements [Metrics].
func (d *drain) Died(kind EventKind) {
	d.dead.Add(1)
	d.Metrics.Died(kind)
}

// Deferred implements [Metrics].
func (d *drain) Deferred(kind EventKind) {
	d.deferred.Add(1)
	d.Metrics.Deferred(kind)
}

// result is the result of the engine.
func (d *drain) result() Drained {
	got := Drained{Done: int(d.done.Load()), Failed: int(d.failed.Load()), Dead: int(d.dead.Load()), Deferred: int(d.deferred.Load())}
	select {
	case <-d.ended:
		got.More = d.more
	default:
	}
	return got
}

const (
	drainLook  = 5 * time.Millisecond // between two looks whether everything in hand is stored
	drainTries = 4                    // cycles that fail in a row until a Drain fails
)

// runDrain is the poller's goroutine in a Drain.
func (p *poller) runDrain(ctx context.Context) {
	d := p.dispatcher.drain
	defer close(d.ended)
	d.more, d.err = p.drainTable(ctx, d)
	if s, ends := p.takeovers.(interface{ end(context.Context) error }); ends {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rangePatience)
		defer cancel()
		d.err = errors.Join(d.err, s.end(ctx))
	}
}

// drainTable runs cycles until a cycle that begins with nothing in hand, at the start of the table,
// takes nothing: then no event that is due can be delivered now. more says that events may be left
// that the next Drain can deliver.
func (p *poller) drainTable(ctx context.Context, d *drain) (more bool, err error) {
	for look, failures := true, 0; ctx.Err() == nil; look = p.awaitLook(ctx) {
		idle := p.dispatcher.isIdle()
		full := d.room(1) <= 0
		switch {
		case idle && full:
			return true, nil
		case full, !idle && !look:
			continue
		case idle:
			p.pass.StartOver()
		}
		taken := d.taken.Load()
		p.agenda.Begin(p.clock.Now())
		_, err := p.cycle(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if failures++; failures == drainTries {
				return true, err
			}
			if !sqlerr.IsDeadlock(err) {
				wait.Sleep(ctx, 50*time.Millisecond<<failures)
			}
			p.Wake()
		case idle && d.taken.Load() == taken:
			return !p.dispatcher.holds() && !p.dispatcher.waits(), nil
		default:
			failures = 0
		}
	}
	return true, nil
}

// awaitLook waits for a moment, or until there is something to read; look says which.
func (p *poller) awaitLook(ctx context.Context) (look bool) {
	timer := time.NewTimer(drainLook)
	defer timer.Stop()
	select {
	case <-p.agenda.Woken:
		return true
	case <-p.dispatcher.room:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.agenda.Next(p.clock.Now()) <= 0
}

// body is the poller's goroutine.
func (p *poller) body() func(ctx context.Context) {
	if p.dispatcher.drain != nil {
		return p.runDrain
	}
	return p.run
}

// now is the time by which the poller looks for events that are due.
func (p *poller) now() time.Time {
	if d := p.dispatcher.drain; d != nil {
		return d.due
	}
	return storedTime(p.clock.Now())
}

package outbox

import (
	"context"
	"errors"
	"runtime/debug"
	"time"
)

// Delivery is what came of delivering one event.
type Delivery struct {
	// Envelope is the event as its listener got it.
	Envelope Envelope
	// Status is what the row becomes. NEW means deferred, or given back because
	// the dispatcher shut down.
	Status Status
	// NextAt is when a RETRY or deferred event is due again.
	NextAt time.Time
	// Err is the failure, [ErrUnroutable], or nil.
	Err error
}

// outcome is a delivery on its way to the store.
type outcome struct {
	env  *Envelope
	kind Outcome
	mark Mark
	err  error

	panicked *PanicError // nil when err is no panic

	tried     bool // a statement failed, and may have been carried out all the same
	overtaken bool // it was: this node has claimed the row anew since

	leased time.Time // when the lease to give up began, if there is no env
}

func (o *outcome) delivery() Delivery {
	d := Delivery{Envelope: *o.env, Err: o.err}
	switch o.kind {
	case OutcomeDone, OutcomeDelete:
		d.Status = StatusDone
	case OutcomeRetry:
		d.Status, d.NextAt = StatusRetry, o.mark.AvailableAt
	case OutcomeDead:
		d.Status = StatusDead
	case OutcomeDeferred:
		d.Status, d.NextAt = StatusNew, o.mark.AvailableAt
	case OutcomeReleased:
		d.Status = StatusNew
	}
	return d
}

// errExhausted is why an event dies that had more attempts than it may have: its
// nodes died each time while they held the lease. A takeover that brings it to
// its last attempt is still delivered.
var errExhausted = errors.New("no attempts left: the last ones ended without an outcome, as when the process dies while delivering")

// deliver runs interceptors and listener and decides what becomes of the event.
func (d *Dispatcher) deliver(ctx context.Context, env *Envelope) outcome {
	if env.Attempts > d.opts.MaxAttempts {
		return d.dead(env, causeOf(errExhausted), false)
	}
	if d.opts.ListenerTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.opts.ListenerTimeout)
		defer cancel()
	}
	start := time.Now()
	res, err := d.chain.OnEvent(ctx, *env)
	d.metrics.ListenerRan(kindOf(env), time.Since(start))
	return d.decide(env, res, err)
}

// decide turns a listener's answer into an outcome.
func (d *Dispatcher) decide(env *Envelope, res Result, err error) outcome {
	c := causeOf(err)
	switch kind := verdict(d.listenerCtx, d.opts, env.Attempts, res, c); kind {
	case OutcomeDeferred:
		if c.err != nil {
			return d.deferred(env, d.opts.OnUnroutable.deferFor, c.err)
		}
		delay, _ := res.RetryAfter()
		return d.deferred(env, delay, nil)
	case OutcomeDead:
		return d.died(env, res, c)
	case OutcomeRetry:
		return outcome{env: env, kind: kind, err: c.err, panicked: c.panicked, mark: Mark{
			EventID: env.EventID, AvailableAt: dueTime(d.clock.Now(), d.delay(env, c)), Error: errorText(c.text),
			Attempts: env.Attempts + 1,
		}}
	case OutcomeReleased:
		return outcome{env: env, kind: kind, mark: Mark{EventID: env.EventID}, err: c.err}
	default:
		return outcome{env: env, kind: d.doneKind, mark: Mark{EventID: env.EventID}}
	}
}

func (d *Dispatcher) deferred(env *Envelope, delay time.Duration, err error) outcome {
	return outcome{env: env, kind: OutcomeDeferred, err: err, mark: Mark{
		EventID: env.EventID, AvailableAt: dueTime(d.clock.Now(), delay),
	}}
}

// died is the death of an event by its listener's answer. Only a failure that
// another attempt might have mended counts as one.
func (d *Dispatcher) died(env *Envelope, res Result, c cause) outcome {
	switch {
	case c.err == nil:
		reason, _ := res.Dead()
		return d.dead(env, causeOf(errors.New(reason)), false)
	case c.unroutable:
		return d.dead(env, causeOf(ErrUnroutable), false)
	default:
		return d.dead(env, c, !c.unrecoverable)
	}
}

func (d *Dispatcher) dead(env *Envelope, c cause, countAttempt bool) outcome {
	o := outcome{env: env, kind: OutcomeDead, err: c.err, panicked: c.panicked, mark: Mark{
		EventID: env.EventID, Error: errorText(c.text),
	}}
	if countAttempt {
		o.mark.Attempts = env.Attempts + 1
	}
	return o
}

// delay is how long a failed event waits: as long as the error says, else as the
// policy does.
func (d *Dispatcher) delay(env *Envelope, c cause) time.Duration {
	if c.retry != nil {
		return max(c.retry.Delay, 0)
	}
	return max(d.retryDelay(env.Attempts+1), 0)
}

// retryDelay asks the policy, and does without it when it panics.
func (d *Dispatcher) retryDelay(attempt int) (delay time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			d.policyPanics.add(1, logKeyError, panicText(r), logKeyAttempts, attempt, logKeyStack, string(debug.Stack()))
			delay = DefaultRetryMax
		}
	}()
	return d.retry.Delay(attempt)
}

func kindOf(env *Envelope) EventKind {
	return EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
}

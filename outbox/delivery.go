package outbox

import (
	"context"
	"errors"
	"fmt"
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
	kind MarkKind
	mark Mark
	err  error
}

func (o *outcome) delivery() Delivery {
	d := Delivery{Envelope: *o.env, Err: o.err}
	switch o.kind {
	case MarkDone, MarkDelete:
		d.Status = StatusDone
	case MarkRetry:
		d.Status, d.NextAt = StatusRetry, o.mark.AvailableAt
	case MarkDead:
		d.Status = StatusDead
	case MarkDeferred:
		d.Status, d.NextAt = StatusNew, o.mark.AvailableAt
	case MarkReleased:
		d.Status = StatusNew
	}
	return d
}

// errExhausted is why an event dies that already had all its attempts, such as
// one whose node died each time while it held the lease.
var errExhausted = errors.New("no attempts left: the last ones ended without an outcome, as when the process dies while delivering")

// deliver runs interceptors and listener and decides what becomes of the event.
func (d *Dispatcher) deliver(ctx context.Context, env *Envelope) outcome {
	if env.Attempts >= d.opts.MaxAttempts {
		return d.dead(env, errExhausted, false)
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
	if err == nil {
		if delay, ok := res.RetryAfter(); ok {
			return d.deferred(env, delay, nil)
		}
		if reason, ok := res.Dead(); ok {
			return d.dead(env, errors.New(reason), false)
		}
		return outcome{env: env, kind: d.doneKind, mark: Mark{EventID: env.EventID}}
	}
	var unrecoverable *UnrecoverableError
	var retry *RetryError
	switch {
	case errors.Is(err, ErrUnroutable):
		if d.opts.OnUnroutable.deferFor > 0 {
			return d.deferred(env, d.opts.OnUnroutable.deferFor, err)
		}
		return d.dead(env, ErrUnroutable, false)
	case errors.As(err, &unrecoverable):
		return d.dead(env, err, false)
	case d.cutOff(err):
		return outcome{env: env, kind: MarkReleased, mark: Mark{EventID: env.EventID}, err: err}
	case env.Attempts+1 >= d.opts.MaxAttempts:
		return d.dead(env, err, true)
	}
	var delay time.Duration
	if errors.As(err, &retry) {
		delay = retry.Delay
	} else {
		delay = d.retryDelay(env.Attempts + 1)
	}
	return outcome{env: env, kind: MarkRetry, err: err, mark: Mark{
		EventID: env.EventID, AvailableAt: dueTime(d.clock.Now(), max(delay, 0)), Error: errorText(err.Error()),
	}}
}

// cutOff reports whether a delivery failed because the dispatcher cancelled the
// listeners to shut down. A panic is the listener's own.
func (d *Dispatcher) cutOff(err error) bool {
	var p *PanicError
	return d.listenerCtx.Err() != nil && !errors.As(err, &p)
}

func (d *Dispatcher) deferred(env *Envelope, delay time.Duration, err error) outcome {
	return outcome{env: env, kind: MarkDeferred, err: err, mark: Mark{
		EventID: env.EventID, AvailableAt: dueTime(d.clock.Now(), delay),
	}}
}

func (d *Dispatcher) dead(env *Envelope, err error, countAttempt bool) outcome {
	return outcome{env: env, kind: MarkDead, err: err, mark: Mark{
		EventID: env.EventID, Error: errorText(err.Error()), CountAttempt: countAttempt,
	}}
}

// retryDelay asks the policy, and does without it when it panics.
func (d *Dispatcher) retryDelay(attempt int) (delay time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			d.policyPanics.add(1, logKeyError, fmt.Sprint(r), logKeyAttempts, attempt, logKeyStack, string(debug.Stack()))
			delay = DefaultRetryMax
		}
	}()
	return d.retry.Delay(attempt)
}

func kindOf(env *Envelope) EventKind {
	return EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
}

package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// errExhausted is why an event dies without another delivery: the event had as many
// deliveries as it may have, and the process died during the last delivery.
var errExhausted = errors.New("no attempts left: the last ones ended without an outcome, as when the process dies during a delivery")

// deliver runs interceptors and listener and decides the outcome of the event.
func (d *dispatcher) deliver(ctx context.Context, dl *delivery) {
	dl.open()
	if d.exhausted(dl) {
		d.die(dl, causeOf(errExhausted), false)
		return
	}
	if d.opts.ListenerTimeout > 0 && dl.batcher == nil { // a batch has a separate timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.opts.ListenerTimeout)
		defer cancel()
	}
	dl.ctx = deliveryContext{Context: ctx, d: d, dl: dl, log: d.log}
	start := time.Now()
	err := d.chain.OnEvent(&dl.ctx, *dl.event())
	d.metrics.ListenerRan(dl.kind(), time.Since(start))
	d.decide(dl, err)
}

// exhausted reports whether an event had all of its deliveries, including the deliveries
// during which a process died. With leases the death of a process that only had the
// event in a queue counts as a delivery too, so with a limit of 1 there is a second
// delivery. Without leases the first death is not counted, because another event may
// have caused it; the delivery counts towards the limit all the same.
func (d *dispatcher) exhausted(dl *delivery) bool {
	attempts := dl.env.Attempts
	if dl.counted {
		return attempts >= max(d.opts.MaxAttempts-1, 1)
	}
	return attempts >= max(d.opts.MaxAttempts, 2)
}

// decide turns a listener's error into an outcome.
func (d *dispatcher) decide(dl *delivery, err error) {
	if dl.completed, err = d.track.answer(dl, err); dl.completed {
		dl.outcome = d.doneOutcome
		if err != nil {
			d.log.Warn("outbox: a listener failed after it had completed its event", logKeyEventID, dl.id(), logKeyError, errorText(causeOf(err).text))
		}
		return
	}
	c := causeOf(err)
	if dl.answers.stand(c) {
		d.split(dl, c)
		return
	}
	d.conclude(dl, outcomeOf(d.listenerCtx, d.opts, dl.env.Attempts, c), c)
}

// outcome decides the outcome of a delivery, or of a single listener of several, from the answer,
// after this many earlier attempts.
func (d *dispatcher) outcome(dl *delivery, attempts int, c cause) Outcome {
	switch {
	case d.track.isCompleted(dl):
		return OutcomeDone
	case dl.answers.stand(c):
		return dl.answers.outcome()
	default:
		return outcomeOf(d.listenerCtx, d.opts, attempts, c)
	}
}

// skipped is the outcome of a listener that is not called any more. A timeout leaves the listener
// to a delivery of its own.
func (d *dispatcher) skipped(dl *delivery) Outcome {
	if cutOff(d.listenerCtx, cause{}) || !d.isOfTheHold(dl) {
		return OutcomeReleased
	}
	return OutcomeDeferred
}

// split decides the outcome of an event of which some listeners are not done: its row
// is finished, and each of these listeners gets a row of its own.
func (d *dispatcher) split(dl *delivery, c cause) {
	dl.outcome, dl.err = dl.answers.outcome(), c.err
	if dl.outcome == OutcomeReleased {
		return
	}
	for _, l := range dl.answers.left {
		row := &delivery{env: rowFor(dl.env, l.listener), only: &only{l.listener, dl.env}}
		d.conclude(row, l.outcome, l.cause)
		dl.answers.rows = append(dl.answers.rows, row)
	}
}

// conclude notes the outcome of a row, and the data that the store needs for that outcome.
func (d *dispatcher) conclude(dl *delivery, outcome Outcome, c cause) {
	dl.err, dl.panicked = c.err, c.panicked
	switch dl.outcome = outcome; outcome {
	case OutcomeDeferred:
		delay, reason := d.opts.DeferUnroutable, ""
		if !c.unroutable {
			if c.decided.pauses && dl.only == nil {
				d.pauseFor(dl, c)
				return
			}
			delay, reason = max(c.decided.Delay, 0), c.reason()
		} else {
			reason = fmt.Sprintf("no listener for %s in the process that took it; deferred by %s", dl.kind(), delay)
			if r, own := d.registry.(*Registry); !own || r.Len() > 0 { // else Start has said so, of all kinds
				d.unheard.Add(dl.kind().String(), logKeyEventType, string(dl.env.EventType), logKeyAggregateType, string(dl.env.AggregateType), logKeyDelay, delay.String())
			}
		}
		dl.reason = errorText(reason)
		dl.next = dueTime(d.clock.Now(), delay)
	case OutcomeDead:
		// Only a failure that another attempt might have mended counts as an attempt.
		d.die(dl, c, !c.decides(OutcomeDead) && !c.unroutable)
	case OutcomeRetry:
		dl.next, dl.reason, dl.attempts = dueTime(d.clock.Now(), d.delay(dl.env, c)), errorText(c.text), dl.env.Attempts+1
	case OutcomeReleased:
	default:
		dl.outcome = d.doneOutcome
	}
}

// pauseFor pauses the kind of an event, and gives the event back without an attempt. The event is due
// a microsecond later than before, so that it is delivered when the pause is over, and so that late
// marks change nothing. In [Ordered] the row stays as it is: the microsecond would be a place behind
// the other events of its transaction.
func (d *dispatcher) pauseFor(dl *delivery, c cause) {
	d.pauses.ask(kindOf(dl.env), c.decided.Delay, c.reason())
	d.wakePoller()
	if d.inOrder {
		dl.outcome = OutcomeReleased
		return
	}
	dl.reason, dl.next = errorText(c.reason()), dl.env.AvailableAt.Add(time.Microsecond)
	if dl.env.AvailableAt.IsZero() { // no time that can be read
		dl.next = dueTime(d.clock.Now(), 0)
	}
}

func (d *dispatcher) die(dl *delivery, c cause, countAttempt bool) {
	dl.outcome, dl.err, dl.panicked, dl.reason = OutcomeDead, c.err, c.panicked, errorText(c.text)
	if countAttempt {
		dl.attempts = dl.env.Attempts + 1
	}
}

// delay is how long a failed event waits: as long as the error says, else as long as
// the policy says.
func (d *dispatcher) delay(env *Envelope, c cause) time.Duration {
	if c.decides(OutcomeRetry) {
		return max(c.decided.Delay, 0)
	}
	return max(d.retryDelay(env.Attempts+1), 0)
}

// retryDelay asks the policy, and returns the default maximum delay when the policy panics.
func (d *dispatcher) retryDelay(attempt int) (delay time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			d.policyPanics.Add(1, logKeyError, fmt.Sprint(r), logKeyAttempts, attempt, logKeyStack, string(debug.Stack()))
			delay = defaultRetryMax
		}
	}()
	return d.retry.Delay(attempt)
}

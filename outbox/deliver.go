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
	rules := d.rulesOf(dl)
	switch {
	case d.isExpired(dl, rules):
		d.conclude(dl, rules.expired(), causeOf(rules.expiredError()))
		return
	case d.exhausted(dl, rules):
		d.die(dl, causeOf(errExhausted), false)
		return
	}
	if rules.ListenerTimeout > 0 && dl.batcher == nil { // a batch has a separate timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rules.ListenerTimeout)
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
func (d *dispatcher) exhausted(dl *delivery, rules *Rules) bool {
	attempts := dl.env.Attempts
	switch {
	case rules.MaxAttempts == Endless:
		return false
	case dl.counted && attempts < max(rules.MaxAttempts-1, 1), !dl.counted && attempts < max(rules.MaxAttempts, 2):
		return false
	default: // without the listener, its rules are not known here
		return d.unheard.isHeard(dl.kind())
	}
}

// callsListener reports whether a delivery that begins now calls its listener.
func (d *dispatcher) callsListener(dl *delivery) bool {
	rules := d.rulesOf(dl)
	return !d.isExpired(dl, rules) && !d.exhausted(dl, rules)
}

// rulesOf are the rules that apply to a delivery.
func (d *dispatcher) rulesOf(dl *delivery) *Rules {
	rules := d.rules.Load()
	if rules.kinds == nil {
		return rules.others
	}
	return rules.of(dl.kind())
}

// rulesFor are the rules of a listener of an event; empty: of the event.
func (d *dispatcher) rulesFor(dl *delivery, listener string) *Rules {
	rules := d.rules.Load()
	if rules.kinds == nil {
		return rules.others
	}
	kind := kindOf(dl.env)
	kind.Listener = listener
	return rules.of(kind)
}

// isExpired reports whether an event is not to be delivered any more.
func (d *dispatcher) isExpired(dl *delivery, rules *Rules) bool {
	return rules.Expires > 0 && d.clock.Now().Sub(dl.env.OccurredAt) > rules.Expires
}

// withTimeout gives one of several listeners the timeout that its rules say, unless the delivery to
// all of them has a timeout.
func (d *dispatcher) withTimeout(ctx context.Context, dl *delivery, listener string) (context.Context, context.CancelFunc) {
	timeout := d.rulesFor(dl, listener).ListenerTimeout
	if timeout == 0 || d.rulesOf(dl).ListenerTimeout > 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// decide turns a listener's error into an outcome.
func (d *dispatcher) decide(dl *delivery, err error) {
	if dl.completed, err = d.track.answer(dl, err); dl.completed {
		dl.outcome = d.rulesOf(dl).done()
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
	d.conclude(dl, d.verdict(dl, d.rulesOf(dl), dl.env.Attempts, c), c)
}

// outcome decides the outcome of a delivery, or of a single listener of several, from the answer,
// after this many earlier attempts.
func (d *dispatcher) outcome(dl *delivery, listener string, attempts int, c cause) Outcome {
	switch {
	case d.track.isCompleted(dl):
		return OutcomeDone
	case dl.answers.stand(c):
		return dl.answers.outcome()
	default:
		return d.verdict(dl, d.rulesFor(dl, listener), attempts, c)
	}
}

// verdict is the outcome that follows from the answer. An event whose kind has no listener here is
// given back, and the kind is left to other processes from then on.
func (d *dispatcher) verdict(dl *delivery, rules *Rules, attempts int, c cause) Outcome {
	outcome := outcomeOf(d.listenerCtx, d.opts, rules, attempts, c)
	if c.unroutable && outcome == OutcomeDeferred && dl.only == nil && !d.inOrder && d.unheard.add(kindOf(dl.env)) {
		return OutcomeReleased
	}
	return outcome
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
	dl.ended = d.rulesOf(dl).done()
	for _, l := range dl.answers.left {
		row := &delivery{env: rowFor(dl.env, l.listener), only: &only{l.listener, dl.env}}
		d.conclude(row, l.outcome, l.cause)
		dl.answers.rows = append(dl.answers.rows, row)
	}
}

// conclude notes the outcome of a row, and the data that the store needs for that outcome.
func (d *dispatcher) conclude(dl *delivery, outcome Outcome, c cause) {
	dl.err, dl.panicked, dl.expired = c.err, c.panicked, c.expired
	switch dl.outcome = outcome; outcome {
	case OutcomeDeferred:
		delay, reason := time.Duration(0), ""
		if c.unroutable {
			delay = unroutableDelay(d.clock.Now().Sub(dl.env.OccurredAt))
			reason = fmt.Sprintf("no listener for %s in the process that took it; deferred by %s", dl.kind(), durationText(delay))
			d.logUnrouted(dl)
		} else if c.decided.pauses && !c.decided.key && dl.only == nil {
			d.pauseFor(dl, c)
			return
		} else {
			delay, reason = max(c.decided.Delay, 0), c.reason()
			if c.decided.key && dl.only == nil && d.deferring() {
				dl.reason, dl.next = errorText(reason), d.pastDrain(d.keys.ask(dl, delay, reason))
				d.wakePoller() // stores the pause
				return
			}
		}
		dl.reason = errorText(reason)
		dl.next = d.dueIn(delay)
	case OutcomeDead:
		// Only a failure that another attempt might have mended counts as an attempt.
		d.die(dl, c, !c.decides(OutcomeDead) && !c.unroutable && !c.expired)
	case OutcomeRetry:
		dl.next, dl.reason, dl.attempts = d.dueIn(d.delay(dl, c)), errorText(c.text), attemptsAfter(dl.env)
	case OutcomeDelete: // expired and dropped
	case OutcomeReleased:
		if c.unroutable {
			d.logUnrouted(dl)
		}
	default:
		dl.outcome = d.rulesOf(dl).done()
	}
}

// logUnrouted logs an event without a listener, in a line for each kind.
func (d *dispatcher) logUnrouted(dl *delivery) {
	d.unrouted.Add(dl.kind().String(), logKeyEventType, string(dl.env.EventType), logKeyAggregateType, string(dl.env.AggregateType))
}

// dueIn is the due time of an event that waits. A Drain does not deliver the event again, also if
// the clock stands still or was set back.
func (d *dispatcher) dueIn(delay time.Duration) time.Time {
	return d.pastDrain(dueTime(d.clock.Now(), delay))
}

// pastDrain is a due time; in a Drain, one after the time by which the Drain looks for events.
func (d *dispatcher) pastDrain(due time.Time) time.Time {
	if d.drain != nil && !due.After(d.drain.due) {
		return d.drain.due.Add(time.Microsecond)
	}
	return due
}

// pauseFor pauses the kind of an event, and gives the event back without an attempt. The event is due
// a microsecond later than before, so that it is delivered when the pause is over, and so that late
// marks change nothing. In [Ordered] the row stays as it is: the microsecond would be a place behind
// the other events of the transaction.
func (d *dispatcher) pauseFor(dl *delivery, c cause) {
	d.pauses.ask(kindOf(dl.env), c.decided.Delay, c.reason())
	d.wakePoller()
	if d.inOrder {
		dl.outcome = OutcomeReleased
		return
	}
	dl.reason, dl.next = errorText(c.reason()), dl.env.AvailableAt.Add(time.Microsecond)
	if dl.env.AvailableAt.IsZero() || d.drain != nil { // no time that can be read, or a Drain, in which the pause may end
		dl.next = d.dueIn(0)
	}
}

// deferring reports whether the events of a key can wait by being deferred: in the other modes that
// changes their order.
func (d *dispatcher) deferring() bool { return !d.byKey && !d.inOrder }

// waitForKey defers an event that waits because of the key, and reports whether it does. Otherwise the
// delivery begins.
func (d *dispatcher) waitForKey(dl *delivery) bool {
	w := dl.waiting
	if w == nil && (d.rules.Load().boundsKeys || d.keys.some.Load()) && d.callsListener(dl) {
		w = d.keys.begin(dl, d.keyBounds(dl, d.rulesOf(dl)))
	}
	if w == nil {
		return false
	}
	dl.open()
	dl.waiting, dl.outcome, dl.reason = w, OutcomeDeferred, errorText(w.reason)
	dl.next = d.pastDrain(dueTime(w.due, 0)) // a slot is known by its exact time
	return true
}

func (d *dispatcher) die(dl *delivery, c cause, countAttempt bool) {
	dl.outcome, dl.err, dl.panicked, dl.reason = OutcomeDead, c.err, c.panicked, errorText(c.text)
	if countAttempt {
		dl.attempts = attemptsAfter(dl.env)
	}
}

// attemptsAfter is the number of attempts after a failure.
func attemptsAfter(env *Envelope) int { return min(env.Attempts, mostAttempts-1) + 1 }

// delay is how long a failed event waits: as long as the error says, else as long as
// the policy says.
func (d *dispatcher) delay(dl *delivery, c cause) time.Duration {
	if c.decides(OutcomeRetry) {
		return max(c.decided.Delay, 0)
	}
	return max(d.retryDelay(d.rulesOf(dl).RetryPolicy, attemptsAfter(dl.env)), 0)
}

// retryDelay asks the policy, and returns the default maximum delay when the policy panics.
func (d *dispatcher) retryDelay(policy RetryPolicy, attempt int) (delay time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			d.policyPanics.Add(1, logKeyError, fmt.Sprint(r), logKeyAttempts, attempt, logKeyStack, string(debug.Stack()))
			delay = defaultRetryMax
		}
	}()
	return policy.Delay(attempt)
}

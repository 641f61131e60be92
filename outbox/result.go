package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Defer is the error of a listener that waits for something: the event is delivered again after d,
// and no attempt is counted. A negative d is zero. Wrap the error to say why; the text of the
// wrapping error is then the event's last error, so that operators see why the event waits:
//
//	fmt.Errorf("the invoice of order %s is not there: %w", id, outbox.Defer(time.Minute))
func Defer(d time.Duration) error {
	return &OutcomeError{Outcome: OutcomeDeferred, Delay: max(d, 0)}
}

// RetryIn is a failure that counts as an attempt and is retried after d, instead of the
// [RetryPolicy]'s delay. A negative d is zero.
func RetryIn(d time.Duration, err error) error {
	return &OutcomeError{Outcome: OutcomeRetry, Delay: max(d, 0), Err: err}
}

// Dead is a failure that another attempt cannot correct: the event's row becomes DEAD at
// once, and [DeadLetters] lists it with the text of err.
func Dead(err error) error { return &OutcomeError{Outcome: OutcomeDead, Err: err} }

// PauseFor says that the receiver behind a listener is down: no event of the kind is delivered for d,
// in any process. The event goes back without an attempt, keeps its place, and waits with the others;
// the text of err is the last error of the event. Nil for err is allowed. d is from a second to a day:
// a shorter or longer d becomes the bound.
//
// The pause is as by [Outbox.Pause], with Automatic set: [Outbox.Paused] lists the pause with the text
// of err, and [Outbox.Resume] ends it early. An automatic pause never shortens a longer pause, and never
// replaces the pause of an operator. When the pause has ended, each process delivers a single event
// of the kind first; the other events follow when that delivery has an outcome, unless it is
// PauseFor again.
//
// If the listener has a name (see [Named]), the kind has other listeners whose receivers are not down.
// The kind is then not paused, and the row of this listener is deferred by d, as with [Defer].
func PauseFor(d time.Duration, err error) error {
	return &OutcomeError{Outcome: OutcomeDeferred, Delay: min(max(d, minPauseFor), maxPauseFor), Err: err, pauses: true}
}

// PauseKeyFor is [PauseFor] for a single key: it says that the receiver of this aggregate id is down, such
// as the endpoint of a customer. The key is the aggregate id among the events of the kind. The event is
// deferred for d, as with [Defer], with the text of err as the last error, and so is each event of the
// key that comes up in any process until then: no attempt is counted, no listener is called, and each
// event that waits costs one write. Nil for err is allowed. d is from a second to a day: a shorter or
// longer d becomes the bound.
//
// When the time is over, each process delivers a single event of the key first. The other events of
// the key follow, a second later at the earliest, when that delivery has an outcome, unless it is
// PauseKeyFor again.
//
// In this process the pause counts at once. Other processes learn it when they read the pauses, as with
// [Outbox.Pause]. [Outbox.Paused] lists the pause, and the events that wait say why in their last error.
// [Outbox.ResumeKey] ends the pause early. A table has about 1,000 paused keys at most; further pauses hold
// in this process only.
//
// PauseKeyFor is Defer, and pauses no key, for an event without an aggregate id, in [OrderedByKey], where
// a deferred event holds back the key anyway, in [Ordered], for a listener that has a name (see
// [Named]), and while this process remembers 100,000 other keys.
func PauseKeyFor(d time.Duration, err error) error {
	return &OutcomeError{Outcome: OutcomeDeferred, Delay: min(max(d, minPauseFor), maxPauseFor), Err: err, pauses: true, key: true}
}

// Limits of the time of [PauseFor] and [PauseKeyFor].
const (
	minPauseFor = time.Second
	maxPauseFor = 24 * time.Hour
)

// OutcomeError is an error by which a listener decides the outcome of its event. [Defer], [RetryIn],
// [Dead], [PauseFor] and [PauseKeyFor] make an OutcomeError; if an error wraps several, the first that
// errors.As finds counts.
type OutcomeError struct {
	Outcome Outcome       // OutcomeDeferred, OutcomeRetry or OutcomeDead; others are plain failures
	Delay   time.Duration // until the next delivery
	Err     error         // the failure; nil if there is none

	pauses bool // the whole kind is deferred; see [PauseFor]
	key    bool // only the key is; see [PauseKeyFor]
}

// Error is the text of the failure, and of the delay if [Defer] or [RetryIn] set a delay.
func (e *OutcomeError) Error() string {
	switch {
	case e.pauses && e.Err == nil:
		return fmt.Sprintf("paused for %s", e.Delay)
	case e.pauses:
		return e.Err.Error()
	case e.Outcome == OutcomeDeferred:
		return fmt.Sprintf("deferred for %s", e.Delay)
	case e.Outcome != OutcomeRetry && e.Err == nil:
		return "the listener gave no reason"
	case e.Outcome != OutcomeRetry:
		return e.Err.Error()
	case e.Err == nil:
		return fmt.Sprintf("retry after %s", e.Delay)
	}
	return fmt.Sprintf("%v (retry after %s)", e.Err, e.Delay)
}

// Unwrap is the failure.
func (e *OutcomeError) Unwrap() error { return e.Err }

// ListenersError is the error of a delivery to several listeners of which some are not done, as
// interceptors get the error; see [Named]. Each listener that is not done is retried by itself if
// the outermost interceptor returns this error, or an error that wraps it.
type ListenersError struct {
	Failures []ListenerFailure

	errs []error // of Failures, for Unwrap, which each question about the error calls; may be nil
}

// ListenerFailure is the error of one of several listeners.
type ListenerFailure struct {
	Listener string
	Err      error
}

// Error lists the errors.
func (e *ListenersError) Error() string {
	texts := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		texts[i] = fmt.Sprintf("listener %s: %s", f.Listener, f.Err)
	}
	return strings.Join(texts, "; ")
}

// Unwrap are the errors of the listeners.
func (e *ListenersError) Unwrap() []error {
	if e.errs != nil {
		return e.errs
	}
	errs := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		errs[i] = f.Err
	}
	return errs
}

// RetryPolicy says how long to wait before the next delivery of an event that failed. A policy must
// be safe for concurrent use.
type RetryPolicy interface {
	// Delay is the wait after the given number of failed attempts, from 1 on. A
	// negative delay is zero.
	Delay(attempt int) time.Duration
}

// RetryPolicyFunc makes a function a [RetryPolicy].
type RetryPolicyFunc func(attempt int) time.Duration

// Delay calls f.
func (f RetryPolicyFunc) Delay(attempt int) time.Duration { return f(attempt) }

// Defaults of [ExponentialBackoff].
const (
	defaultRetryBase = 200 * time.Millisecond
	defaultRetryMax  = time.Minute
)

// ExponentialBackoff waits min(limit, base·2^(attempt-1)) times a jitter from
// [0.5, 1.5), never more than limit. A base or a limit that is not positive is
// replaced by the default, 200 ms and 1 minute, and a limit below the base by the
// base.
func ExponentialBackoff(base, limit time.Duration) RetryPolicy {
	if base <= 0 {
		base = defaultRetryBase
	}
	if limit <= 0 {
		limit = defaultRetryMax
	}
	return &exponentialBackoff{base: base, limit: max(limit, base)}
}

type exponentialBackoff struct{ base, limit time.Duration }

func (b *exponentialBackoff) Delay(attempt int) time.Duration {
	d := b.limit
	// base << n overflows for a large n: compare before shifting.
	if n := max(attempt, 1) - 1; n < 63 && b.base <= b.limit>>n {
		d = b.base << n
	}
	jittered := float64(d) * (0.5 + rand.Float64())
	if jittered >= float64(b.limit) { // compared as floats: the product may not fit a Duration
		return b.limit
	}
	return time.Duration(jittered)
}

// cause has the facts about a delivery's error that the engine needs. The methods of an error may
// panic, as the methods of a nil pointer do. So the engine calls them once, with a recover, and
// uses the cause from then on.
type cause struct {
	err        error // nil when the listener is done
	text       string
	unroutable bool
	expired    bool
	released   bool
	panicked   *PanicError     // nil when nothing panicked
	decided    *OutcomeError   // nil when the listener decides nothing
	listeners  *ListenersError // nil when the error is not of several listeners
}

// causeOf returns the cause of an error. An error whose methods panic counts as a
// panic.
func causeOf(err error) cause {
	if err == nil {
		return cause{}
	}
	return ask(err)
}

func ask(err error) (c cause) {
	defer func() {
		if r := recover(); r != nil {
			p := &PanicError{Value: fmt.Sprintf("a method of the error, a %T, panicked: %v", err, r), Stack: debug.Stack(), at: panicPlace()}
			c = cause{err: p, text: p.Error(), panicked: p}
		}
	}()
	c = cause{err: err, text: err.Error(), unroutable: errors.Is(err, ErrUnroutable), expired: errors.Is(err, errExpired), released: errors.Is(err, errReleased) || errors.Is(err, errTurn)}
	if strings.TrimSpace(c.text) == "" {
		c.text = fmt.Sprintf("an error of type %T without a text", err)
	}
	errors.As(err, &c.panicked)
	errors.As(err, &c.decided)
	errors.As(err, &c.listeners)
	return c
}

// decides reports whether the listener asks for this outcome.
func (c cause) decides(outcome Outcome) bool { return c.decided != nil && c.decided.Outcome == outcome }

// reason is why a listener defers an event or pauses the kind or the key; empty: the listener does not say.
func (c cause) reason() string {
	if !c.decided.pauses && c.text == c.decided.Error() {
		return ""
	}
	return c.text
}

// sound returns err, or a PanicError if calling the methods of err panics.
func sound(err error) error { return causeOf(err).err }

// panicError is the error for a recovered panic.
func panicError(r any) error {
	return sound(&PanicError{Value: r, Stack: debug.Stack(), at: panicPlace()})
}

// panicPlace is the file and the line of the panic that is being recovered: the first frame below
// the frames of the runtime.
func panicPlace() string {
	frames := make([]uintptr, 64)
	calls := runtime.CallersFrames(frames[:runtime.Callers(1, frames)])
	raised := false
	for more := true; more; {
		var frame runtime.Frame
		frame, more = calls.Next()
		inRuntime := strings.HasPrefix(frame.Function, "runtime.")
		if raised && !inRuntime {
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
		raised = raised || frame.Function == "runtime.gopanic"
	}
	return ""
}

// outcomeUnknown reports whether a transaction ended without a definite answer.
func outcomeUnknown(cause error) bool { return errors.Is(sound(cause), ErrOutcomeUnknown) }

// outcomeOf decides the outcome of a delivery after this many earlier attempts. listeners is the
// parent of the listeners' contexts.
func outcomeOf(listeners context.Context, opts DispatchOptions, rules *Rules, attempts int, c cause) Outcome {
	switch {
	case c.err == nil:
		return OutcomeDone
	case c.expired:
		return rules.expired()
	case c.unroutable:
		if opts.OnUnroutable == KillUnroutable {
			return OutcomeDead
		}
		return OutcomeDeferred
	case c.decides(OutcomeDead), c.decides(OutcomeDeferred):
		return c.decided.Outcome
	case c.released || cutOff(listeners, c):
		return OutcomeReleased
	case rules.isLast(attempts):
		return OutcomeDead
	default:
		return OutcomeRetry
	}
}

// unroutableDelay is how long an event without a listener waits, by age: the waits double, so that
// a backlog of such events costs few statements.
func unroutableDelay(age time.Duration) time.Duration {
	return min(max(age, time.Second), maxUnroutableDelay)
}

// maxUnroutableDelay is how long an event may wait for a process that was started with its listener.
const maxUnroutableDelay = 5 * time.Minute

// cutOff reports whether a delivery failed because the shutdown cancelled the listeners. A
// ListenerTimeout does not count: a timeout is an exceeded deadline. A panic counts as the
// listener's failure.
func cutOff(listeners context.Context, c cause) bool {
	return errors.Is(listeners.Err(), context.Canceled) && c.panicked == nil
}

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

// Result is what a listener returns when it did not fail. The zero value is [Done].
type Result struct {
	kind   resultKind
	delay  time.Duration
	reason string
	err    error
}

type resultKind uint8

const (
	resultDone resultKind = iota
	resultRetryAfter
	resultDead
	resultFailed
)

// Done says that the listener handled the event: its row becomes DONE.
func Done() Result { return Result{} }

// RetryAfter defers the event: it is delivered again after d, and no attempt is
// counted. Use it to wait for something; use [RetryAfterError] for a failure. A
// negative d is zero.
func RetryAfter(d time.Duration) Result {
	return Result{kind: resultRetryAfter, delay: max(d, 0)}
}

// Because gives a [RetryAfter] result a reason, which becomes the event's last error, so that
// operators see why the event waits. Other results stay as they are.
func (r Result) Because(reason string) Result {
	if r.kind == resultRetryAfter {
		r.reason = reason
	}
	return r
}

// Dead ends the event's deliveries at once: its row becomes DEAD with the reason, and
// [DeadLetters] lists it.
func Dead(reason string) Result { return Result{kind: resultDead, reason: reason} }

// ResultOf is the result for an error, for listeners that return a result for each of
// several events: a nil error is [Done], and any other one is a failed delivery, as if a
// listener had returned it; see [RetryAfterError] and [Unrecoverable].
func ResultOf(err error) Result {
	if err == nil {
		return Done()
	}
	return Result{kind: resultFailed, err: err}
}

// IsDone reports whether r is [Done].
func (r Result) IsDone() bool { return r.kind == resultDone }

// RetryAfter reports the delay of a [RetryAfter] result.
func (r Result) RetryAfter() (time.Duration, bool) { return r.delay, r.kind == resultRetryAfter }

// Dead reports the reason of a [Dead] result.
func (r Result) Dead() (string, bool) {
	if r.kind != resultDead {
		return "", false
	}
	return r.reason, true
}

// Err is the error of a [ResultOf] result, else nil.
func (r Result) Err() error { return r.err }

// split separates a failure from the other results, as OnEvent returns them.
func (r Result) split() (Result, error) {
	if r.kind == resultFailed {
		return Result{}, r.err
	}
	return r, nil
}

// String is "Done", "RetryAfter(2s)", "Dead(reason)" or "Failed(error)".
func (r Result) String() string {
	switch r.kind {
	case resultRetryAfter:
		return fmt.Sprintf("RetryAfter(%s)", r.delay)
	case resultDead:
		return fmt.Sprintf("Dead(%s)", r.reason)
	case resultFailed:
		return fmt.Sprintf("Failed(%v)", r.err)
	default:
		return "Done"
	}
}

// RetryPolicy says how long to wait before the next delivery of an event that
// failed. It must be safe for concurrent use.
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
	DefaultRetryBase = 200 * time.Millisecond
	DefaultRetryMax  = time.Minute
)

// ExponentialBackoff waits min(limit, base·2^(attempt-1)) times a jitter from
// [0.5, 1.5), never more than limit. A base or a limit that is not positive is
// replaced by the default, 200 ms and 1 minute, and a limit below the base by the
// base.
func ExponentialBackoff(base, limit time.Duration) RetryPolicy {
	if base <= 0 {
		base = DefaultRetryBase
	}
	if limit <= 0 {
		limit = DefaultRetryMax
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

// cause is what the engine needs to know about a delivery's error. The methods of an
// error may panic, as those of a nil pointer do. So the engine calls them once, with
// a recover, and uses the cause from then on.
type cause struct {
	err           error // nil when nothing failed
	text          string
	unroutable    bool
	unrecoverable bool
	released      bool
	panicked      *PanicError     // nil when nothing panicked
	retry         *RetryError     // nil when the error asks for no delay
	listeners     *ListenersError // nil when the error is not one of several listeners
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
	c = cause{err: err, text: err.Error(), unroutable: errors.Is(err, ErrUnroutable), released: errors.Is(err, errReleased) || errors.Is(err, errTurn)}
	if strings.TrimSpace(c.text) == "" {
		c.text = fmt.Sprintf("an error of type %T without a text", err)
	}
	c.unrecoverable = errors.As(err, new(*UnrecoverableError))
	errors.As(err, &c.panicked)
	errors.As(err, &c.retry)
	errors.As(err, &c.listeners)
	return c
}

// sound is err, or a PanicError in its place if its methods panic.
func sound(err error) error { return causeOf(err).err }

// panicError is the error for a recovered panic.
func panicError(r any) error {
	return sound(&PanicError{Value: r, Stack: debug.Stack(), at: panicPlace()})
}

// panicPlace is the file and the line of the panic that is being recovered: the first
// frame below those of the runtime.
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

// OutcomeOf returns the outcome of a delivery, for interceptors that report it, such
// as tracing. ctx and env are those of the interceptor; res and err are what the next
// listener returned. The stored outcome may differ: interceptors further out may
// change the result, and if a shutdown cancels the listeners before those return, a
// failure becomes [OutcomeReleased]. [OutcomeDone] also stands for
// [OutcomeDelete] and for an event that the listener completed itself. [OutcomeSplit]
// is that of an event with several listeners of which some are not done; err has the
// failures.
// If ctx does not come from a dispatcher, the defaults of [DispatchOptions] apply.
func OutcomeOf(ctx context.Context, env Envelope, res Result, err error) Outcome {
	if c := deliveryOf(ctx); c != nil {
		return c.d.outcome(c.dl, env.Attempts, res, causeOf(err))
	}
	return outcomeOf(ctx, DispatchOptions{}.withDefaults(), env.Attempts, res, causeOf(err))
}

// outcome is what an answer means for a delivery after that many earlier attempts.
func (d *dispatcher) outcome(dl *delivery, attempts int, res Result, c cause) Outcome {
	switch {
	case d.track.isCompleted(dl):
		return OutcomeDone
	case dl.answers.stand(res, c):
		return dl.answers.outcome()
	default:
		return outcomeOf(d.listenerCtx, d.opts, attempts, res, c)
	}
}

// ListenerOf returns the name of the one listener that the delivery of ctx is for, for
// interceptors that report it. It is empty in the delivery of an event to all of its
// listeners; see [Named].
func ListenerOf(ctx context.Context) string {
	if c := deliveryOf(ctx); c != nil {
		return c.dl.listener()
	}
	return ""
}

// outcomeOf decides the outcome of a delivery after that many earlier attempts.
// listeners is the parent of the listeners' contexts.
func outcomeOf(listeners context.Context, opts DispatchOptions, attempts int, res Result, c cause) Outcome {
	if c.err != nil {
		return outcomeOnError(listeners, opts, attempts, c)
	}
	if _, again := res.RetryAfter(); again {
		return OutcomeDeferred
	}
	if _, dead := res.Dead(); dead {
		return OutcomeDead
	}
	return OutcomeDone
}

func outcomeOnError(listeners context.Context, opts DispatchOptions, attempts int, c cause) Outcome {
	switch {
	case c.unroutable:
		if opts.OnUnroutable.deferFor > 0 {
			return OutcomeDeferred
		}
		return OutcomeDead
	case c.unrecoverable:
		return OutcomeDead
	case c.released || cutOff(listeners, c):
		return OutcomeReleased
	case attempts+1 >= opts.MaxAttempts:
		return OutcomeDead
	default:
		return OutcomeRetry
	}
}

// cutOff reports whether a delivery failed because the shutdown cancelled the
// listeners. A ListenerTimeout is not that: it is an exceeded deadline. A panic
// counts as the listener's failure.
func cutOff(listeners context.Context, c cause) bool {
	return errors.Is(listeners.Err(), context.Canceled) && c.panicked == nil
}

package outbox

import (
	"fmt"
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

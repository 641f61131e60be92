package outbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

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

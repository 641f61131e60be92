package outbox

import (
	"context"
	"fmt"
	"strings"
)

// listeners are the listeners of one pair of types that have names, in the order in
// which they are called. They are one [Listener] for the interceptors, which run once
// around all of them.
type listeners []listener

type listener struct {
	name string
	Listener
}

// named is the listener of that name, or nil.
func (l listeners) named(name string) Listener {
	for i := range l {
		if l[i].name == name {
			return guard{l[i].Listener}
		}
	}
	return nil
}

// answers are what several listeners answered in the delivery of one event.
type answers struct {
	of   int      // listeners of the pair
	done int      // of those
	left []answer // of those that are not done

	// What the interceptors got: see [answers.sum].
	result Result
	err    *ListenersError

	rows []*delivery // of those that are not done; see [Dispatcher.split]
}

type answer struct {
	listener string
	result   Result
	cause    cause
	skipped  bool // the context had ended before, or the event was lost
}

// OnEvent calls each listener. An interceptor that calls it again in the same delivery
// reaches those that are not done. No further listener begins when this process lost the
// event: another process may have delivered the event, and later ones.
func (l listeners) OnEvent(ctx context.Context, env Envelope) (Result, error) {
	a, todo := &answers{of: len(l)}, l
	c := deliveryOf(ctx)
	if c != nil {
		if before := c.dl.answers; before != nil {
			a.done, todo = before.done, l.that(before.left)
		}
		c.dl.answers = a
	}
	for i := range todo {
		if ctx.Err() != nil || c != nil && !c.d.stillHas(c.dl) {
			a.left = append(a.left, answer{listener: todo[i].name, result: RetryAfter(0), skipped: true})
			continue
		}
		res, err := guard{todo[i].Listener}.OnEvent(ctx, env)
		if err == nil && res.IsDone() {
			a.done++
			continue
		}
		a.left = append(a.left, answer{listener: todo[i].name, result: res, cause: causeOf(err)})
	}
	return a.sum()
}

// that are the listeners that gave these answers.
func (l listeners) that(left []answer) (some listeners) {
	for i := range l {
		for j := range left {
			if l[i].name == left[j].listener {
				some = append(some, l[i])
			}
		}
	}
	return some
}

// sum is what the interceptors get: the errors, else the first Dead, else the first
// RetryAfter, else Done.
func (a *answers) sum() (Result, error) {
	for _, l := range a.left {
		_, dead := l.result.Dead()
		_, before := a.result.Dead()
		switch {
		case l.cause.err != nil:
			if a.err == nil {
				a.err = &ListenersError{}
			}
			a.err.Failures = append(a.err.Failures, ListenerFailure{Listener: l.listener, Err: l.cause.err})
		case a.result.IsDone() || dead && !before:
			a.result = l.result
		}
	}
	if a.err != nil {
		a.result = Result{}
		return a.result, a.err
	}
	return a.result, nil
}

// stand reports whether what the outermost interceptor returned is what the listeners
// answered, or wraps it. If not, it decides for the whole event.
func (a *answers) stand(res Result, c cause) bool {
	switch {
	case a == nil || len(a.left) == 0:
		return false
	case a.err != nil:
		return c.listeners == a.err
	default:
		return c.err == nil && res == a.result
	}
}

// splitOutcome is the outcome of an event of which some listeners are not done. A
// shutdown that cut one of them off, or another process that holds the table, releases the
// whole event.
func (d *Dispatcher) splitOutcome(dl *delivery) Outcome {
	for _, l := range dl.answers.left {
		cut := l.skipped && (cutOff(d.listenerCtx, l.cause) || !d.isOfTheHold(dl))
		if cut || outcomeOf(d.listenerCtx, d.opts, dl.env.Attempts, l.result, l.cause) == OutcomeReleased {
			return OutcomeReleased
		}
	}
	return OutcomeSplit
}

// split decides the outcome of an event of which some listeners are not done: its row
// is finished, and each of these listeners gets a row of its own.
func (d *Dispatcher) split(dl *delivery, c cause) {
	dl.outcome, dl.err = d.splitOutcome(dl), c.err
	if dl.outcome == OutcomeReleased {
		return
	}
	for _, l := range dl.answers.left {
		row := &delivery{env: rowFor(dl.env, l.listener), only: &only{l.listener, dl.env}}
		d.conclude(row, l.result, l.cause)
		dl.answers.rows = append(dl.answers.rows, row)
	}
}

// splits are the ends of events with the rows of their listeners.
func (c *completer) splits(ds []*delivery, marks []Mark) []Split {
	splits := make([]Split, len(ds))
	for i, dl := range ds {
		splits[i].Mark = marks[i]
		for _, row := range dl.rows() {
			splits[i].Rows = append(splits[i].Rows, ListenerRow{Envelope: *row.env, Outcome: c.storedAs(row.outcome), Mark: row.mark()})
		}
	}
	return splits
}

// ListenersError is the error of a delivery to several listeners of which some
// failed, as interceptors get it; see [Named]. Each of them is retried by itself
// if the outermost interceptor returns this error, or one that wraps it.
type ListenersError struct {
	Failures []ListenerFailure
}

// ListenerFailure is the failure of one of several listeners.
type ListenerFailure struct {
	Listener string
	Err      error
}

// Error lists the failures.
func (e *ListenersError) Error() string {
	texts := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		texts[i] = fmt.Sprintf("listener %s: %s", f.Listener, f.Err)
	}
	return strings.Join(texts, "; ")
}

// Unwrap are the errors of the listeners.
func (e *ListenersError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		errs[i] = f.Err
	}
	return errs
}

package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"maps"
)

// listeners are the listeners of a pair of types that have names, in the order in which they are
// called. For the interceptors they are a single [Listener]: the interceptors run once around all
// listeners.
type listeners []listener

type listener struct {
	name string
	Listener
}

// named returns the listener with this name, or nil.
func (l listeners) named(name string) Listener {
	for i := range l {
		if l[i].name == name {
			return guard{l[i].Listener}
		}
	}
	return nil
}

// answers are the answers of several listeners in the delivery of an event.
type answers struct {
	of   int      // listeners of the pair
	done int      // listeners that are done
	left []answer // the answers of the listeners that are not done

	err  *ListenersError // the error that the interceptors got, if some listeners are not done
	rows []*delivery     // of the listeners that are not done; see [dispatcher.split]
}

type answer struct {
	listener string
	cause    cause
	// outcome is decided when the listener answers, because a shutdown that comes later did not
	// cut the listener off. Unset when no dispatcher called the listener.
	outcome Outcome
}

// OnEvent calls each listener. An interceptor that calls OnEvent again in the same delivery reaches
// the listeners that are not done. No further listener begins when this process lost the event:
// another process may have delivered the event, and later events.
func (l listeners) OnEvent(ctx context.Context, env Envelope) error {
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
			left := answer{listener: todo[i].name, cause: causeOf(Defer(0))}
			if c != nil {
				left.outcome = c.d.skipped(c.dl)
			}
			a.left = append(a.left, left)
			continue
		}
		err := todo[i].call(ctx, c, env)
		if err == nil {
			a.done++
			continue
		}
		left := answer{listener: todo[i].name, cause: causeOf(err)}
		if c != nil {
			left.outcome = c.d.outcome(c.dl, left.listener, c.dl.env.Attempts, left.cause)
		}
		a.left = append(a.left, left)
	}
	return a.sum()
}

// call calls a listener in the delivery to several, with the timeout that its rules say.
func (l *listener) call(ctx context.Context, c *deliveryContext, env Envelope) error {
	if c != nil {
		var cancel context.CancelFunc
		ctx, cancel = c.d.withTimeout(ctx, c.dl, l.name)
		defer cancel()
	}
	return guard{l.Listener}.OnEvent(ctx, env)
}

// that returns the listeners that gave these answers.
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

// sum is the error for the interceptors: nil if all listeners are done.
func (a *answers) sum() error {
	if len(a.left) == 0 {
		return nil
	}
	a.err = &ListenersError{Failures: make([]ListenerFailure, len(a.left)), errs: make([]error, len(a.left))}
	for i, l := range a.left {
		a.err.Failures[i], a.err.errs[i] = ListenerFailure{Listener: l.listener, Err: l.cause.err}, l.cause.err
	}
	return a.err
}

// stand reports whether the outermost interceptor returned the error that the listeners answered,
// or wraps it. If not, the interceptor decides for the whole event.
func (a *answers) stand(c cause) bool { return a != nil && a.err != nil && c.listeners == a.err }

// outcome is the outcome of an event of which some listeners are not done. A shutdown that cut off
// one of these listeners, or another process that holds the table, releases the whole event.
func (a *answers) outcome() Outcome {
	for _, l := range a.left {
		if l.outcome == OutcomeReleased {
			return OutcomeReleased
		}
	}
	return OutcomeSplit
}

// listenerRowID is the id of a row for a listener of an event. The id is always the same, so that
// an event never has two rows for a listener.
func listenerRowID(eventID, listener string) string {
	sum := sha256.Sum256([]byte(eventID + "\x00" + listener)) // neither contains a NUL
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20])
}

// rowFor is the envelope of a row for a listener of an event.
func rowFor(env *Envelope, listener string) *Envelope {
	row := *env
	row.EventID = listenerRowID(env.EventID, listener)
	row.Headers = make(map[string]string, len(env.Headers)+2)
	maps.Copy(row.Headers, env.Headers)
	row.Headers[HeaderListener], row.Headers[HeaderEventID] = listener, env.EventID
	return &row
}

// originalOf returns the event of a row as listeners see it, and the listener that the row is for;
// empty: all listeners.
func originalOf(row *Envelope) (env Envelope, listener string) {
	env = *row
	if listener = env.Headers[HeaderListener]; listener == "" {
		return env, ""
	}
	env.EventID = env.Headers[HeaderEventID]
	env.Headers = maps.Clone(env.Headers)
	delete(env.Headers, HeaderListener)
	delete(env.Headers, HeaderEventID)
	if len(env.Headers) == 0 {
		env.Headers = nil
	}
	return env, listener
}

// only is the single listener that a row is for, and the event that the listener gets.
type only struct {
	listener string
	event    *Envelope
}

// open looks for the listener that a row is for.
func (d *delivery) open() {
	if d.env.Headers[HeaderListener] != "" {
		env, listener := originalOf(d.env)
		d.only = &only{listener, &env}
	}
}

// event is the envelope that listeners get.
func (d *delivery) event() *Envelope {
	if d.only != nil {
		return d.only.event
	}
	return d.env
}

// listener is the name of the listener that the row is for; empty: all.
func (d *delivery) listener() string {
	if d.only != nil {
		return d.only.listener
	}
	return ""
}

// kind is the kind of event in the metrics of the delivery.
func (d *delivery) kind() EventKind {
	kind := kindOf(d.env)
	kind.Listener = d.listener()
	return kind
}

// rows are the rows that a split event leaves.
func (d *delivery) rows() []*delivery {
	if d.answers != nil {
		return d.answers.rows
	}
	return nil
}

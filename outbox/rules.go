package outbox

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// Rules are the rules of a kind of event. Give them to the kind's listener, as the last argument of
// [Topic.Listen], [Topic.ListenBatch] or [On], or to an outbox, in [DispatchOptions].Rules. Zero
// fields say nothing. Field by field, [DispatchOptions].Rules count before the rules of a listener,
// and these count before the options of the outbox.
//
// MaxAttempts, RetryPolicy and ListenerTimeout are the listener's: each of several listeners of a
// pair may have its own; see [Named]. The other fields are the kind's: [Registry.Register] fails
// when two listeners of a kind say different values.
//
// The outbox reads the rules of listeners at Start, from a [*Registry]. With a [ListenerRegistry] of
// another type, only [DispatchOptions].Rules apply.
//
// [Ordered] has one attempt and one worker: it refuses MaxAttempts, RetryPolicy, Concurrency, Rate,
// Burst and Fleetwide. [OrderedByKey] refuses Concurrency, Rate, Burst and Fleetwide, because a worker
// delivers the events of a key, whatever their kinds. In [WriterOnly] only Retention has an effect.
type Rules struct {
	// MaxAttempts is how many deliveries may fail until an event goes DEAD; [Endless]: no bound.
	// If an interceptor refuses an event of several listeners, the event has the attempts of the
	// listener with the most. Defaults to
	// [DispatchOptions].MaxAttempts.
	MaxAttempts int
	// RetryPolicy says how long to wait after a failed delivery. Defaults to [Config].RetryPolicy.
	RetryPolicy RetryPolicy
	// ListenerTimeout ends the context of a delivery; [NoTimeout]: nothing ends the context but a
	// shutdown. With several listeners, of which at least one has a ListenerTimeout, each listener
	// has a timeout of its own; without, one timeout is for all of them together. A call of a
	// [BatchListener] with events of several kinds has the shortest of their timeouts. Defaults to
	// [DispatchOptions].ListenerTimeout.
	ListenerTimeout time.Duration

	// Expires is how long after OccurredAt an event may still be delivered, at least a millisecond.
	// Later the event goes DEAD, and the reason begins with "expired"; no attempt is counted. The
	// time is looked at before each delivery begins, so an expired event stays in the table for as
	// long as the kind is paused or another event comes first. A delivery that has begun goes on. A
	// replay does not change OccurredAt: the event expires again. The process that wrote the event
	// and the process that delivers it use their own clocks, [Config].Clock: a difference between
	// the clocks makes events expire earlier or later by that difference. Defaults to never.
	Expires time.Duration
	// DropExpired deletes the row of an expired event; see Expires. Defaults to false: the row
	// becomes DEAD.
	DropExpired bool

	// OnDone says whether a delivered row is kept or deleted. Defaults to [PurgeOptions].OnDone.
	OnDone OnDone
	// Retention is how long DONE and DEAD rows of the kind are kept, in [WriterOnly] all rows;
	// [NoRetention] keeps no rows. Retention needs [Config].Purge, which says how often. Defaults to
	// [PurgeOptions].Retention.
	Retention time.Duration

	// Concurrency is how many listeners of the kind run at once in this process. A kind with a
	// Concurrency or a Rate has workers and a small queue of its own, beside the workers and queues
	// of [DispatchOptions]. Events for which the small queue has no room stay in the table, in their
	// order: they cost no attempt, no room in the other queues, and no other worker. n processes
	// together deliver n times as many; see Fleetwide. At most 10,000. Defaults to [DispatchOptions].Workers with a
	// Rate, else to no bound. A kind with a [BatchListener] has neither Concurrency nor Rate.
	Concurrency int
	// Rate is how many deliveries begin in a second, retries included. Defaults to no bound; from
	// one in a day to 1,000,000 in a second. Closing does not wait for deliveries that are not yet
	// allowed to begin: closing gives their events back.
	Rate float64
	// Burst is how many deliveries may begin at once after a pause, when Rate is set. With 1, they
	// begin at least 1/Rate seconds apart. Defaults to as many as Rate allows in a tenth of a
	// second, at least 1; at most 1,000,000.
	Burst int
	// Fleetwide makes Concurrency and Rate, with the Burst, bounds of all processes together. It needs
	// one of them; without a Concurrency, each process runs as many listeners as
	// [DispatchOptions].Workers. In [MultiNode] the processes that have events of the kind divide the
	// bounds among themselves, through a row of the control table that each reads and renews every
	// second; a delivery asks the database nothing. All processes must have the same rules. The share
	// of a process that died ends after 10 seconds. A process that cannot renew the share begins no
	// deliveries of the kind after 8 seconds; deliveries that run by then go on. In [SingleNode] the
	// process that holds the table has the bounds. Defaults to false: the bounds are of each process.
	Fleetwide bool
}

// Endless is the MaxAttempts that retries an event until its delivery succeeds.
const Endless = -1

// NoTimeout is the [Rules].ListenerTimeout for no timeout where the outbox has one.
const NoTimeout time.Duration = -1

// mostAttempts is where the attempts of a row stop: the column of each database has room for more.
const mostAttempts = math.MaxInt32 - 1

// minRate and maxRate are the bounds of [Rules].Rate: one delivery a day, and a million
// a second.
const (
	minRate = 1.0 / (24 * 60 * 60)
	maxRate = 1e6
)

// option implements [BindingOption].
func (r Rules) option() bindingOptions { return bindingOptions{rules: r} }

// bindingOptions are what a [BindingOption] says.
type bindingOptions struct {
	name  string
	rules Rules
}

// isZero reports whether the rules say nothing.
func (r Rules) isZero() bool {
	return r.MaxAttempts == 0 && r.RetryPolicy == nil && r.ListenerTimeout == 0 && r.ofKind() == (Rules{})
}

// ofKind are the fields that are the kind's.
func (r Rules) ofKind() Rules {
	r.MaxAttempts, r.RetryPolicy, r.ListenerTimeout = 0, nil, 0
	return r
}

// or takes the fields that r does not say from s.
func (r Rules) or(s Rules) Rules {
	if r.RetryPolicy == nil {
		r.RetryPolicy = s.RetryPolicy
	}
	return Rules{
		MaxAttempts: defaultTo(r.MaxAttempts, s.MaxAttempts), RetryPolicy: r.RetryPolicy,
		ListenerTimeout: defaultTo(r.ListenerTimeout, s.ListenerTimeout),
		Expires:         defaultTo(r.Expires, s.Expires), DropExpired: r.DropExpired || s.DropExpired,
		OnDone: defaultTo(r.OnDone, s.OnDone), Retention: defaultTo(r.Retention, s.Retention),
		Concurrency: defaultTo(r.Concurrency, s.Concurrency), Rate: defaultTo(r.Rate, s.Rate), Burst: defaultTo(r.Burst, s.Burst),
		Fleetwide: r.Fleetwide || s.Fleetwide,
	}
}

func (r Rules) validate(v *validator) {
	validateAttempts(v, r.MaxAttempts)
	if r.RetryPolicy != nil && nilness.IsNil(r.RetryPolicy) {
		v.add("RetryPolicy", fmt.Sprintf("is a nil %T; leave it out for the default", r.RetryPolicy))
	}
	if r.ListenerTimeout != NoTimeout {
		v.duration("ListenerTimeout", r.ListenerTimeout)
	}
	v.duration("Expires", r.Expires)
	r.OnDone.validate(v)
	if r.Retention != NoRetention {
		v.duration("Retention", r.Retention)
	}
	v.count("Concurrency", r.Concurrency, maxWorkers)
	v.count("Burst", r.Burst, maxQueueCapacity)
	switch {
	case math.IsNaN(r.Rate) || r.Rate < 0:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second; it must be positive, or zero for no bound", r.Rate))
	case r.Rate > maxRate:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second; the limit is %v", r.Rate, maxRate))
	case r.Rate > 0 && r.Rate < minRate:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second, less than one a day; to stop a kind of event, use Outbox.Pause", r.Rate))
	}
}

// validateAttempts checks MaxAttempts.
func validateAttempts(v *validator, n int) {
	if n < 0 && n != Endless {
		v.add("MaxAttempts", fmt.Sprintf("is %d; it must be positive, or outbox.Endless", n))
	}
}

// fields are the fields as texts, by their names, without the fields that say nothing.
func (r Rules) fields() map[string]string {
	said := map[string]string{}
	note := func(name string, isSaid bool, value any) {
		if isSaid {
			said[name] = fmt.Sprint(value)
		}
	}
	note("MaxAttempts", r.MaxAttempts != 0, r.MaxAttempts)
	note("RetryPolicy", r.RetryPolicy != nil, "set")
	note("Expires", r.Expires != 0, r.Expires)
	note("OnDone", r.OnDone != 0, r.OnDone)
	note("Retention", r.Retention != 0, r.Retention)
	note("Concurrency", r.Concurrency != 0, r.Concurrency)
	note("Rate", r.Rate != 0, r.Rate)
	note("Burst", r.Burst != 0, r.Burst)
	note("Fleetwide", r.Fleetwide, r.Fleetwide)
	return said
}

// refuse reports the fields that say something and have no effect, for this reason.
func (r Rules) refuse(v *validator, why string, names ...string) {
	said := r.fields()
	for _, name := range names {
		if value, is := said[name]; is {
			v.add(name, fmt.Sprintf("is %s, but %s", value, why))
		}
	}
}

// differ reports a field of the kind for which two listeners say different values.
func differ(kind EventKind, r Rules, other EventKind, s Rules) error {
	said, before := r.ofKind().fields(), s.ofKind().fields()
	for _, field := range slices.Sorted(maps.Keys(said)) {
		if value, is := before[field]; is && value != said[field] {
			return &FieldError{
				Field:   rulesOfBinding(kind) + "." + field,
				Problem: fmt.Sprintf("is %s, but %s.%s is %s; all listeners of a kind share it: set it once, or to the same value", said[field], rulesOfBinding(other), field, value),
			}
		}
	}
	return nil
}

// rulesOfBinding names the rules of a listener in errors.
func rulesOfBinding(kind EventKind) string {
	if kind.Listener == "" {
		return fmt.Sprintf("Binding[%s].Rules", kind)
	}
	return fmt.Sprintf("Binding[%s %s].Rules", kind, kind.Listener)
}

// isLimited reports whether the kind has workers of its own.
func (r *Rules) isLimited() bool { return r.Concurrency > 0 || r.Rate > 0 }

// isLast reports whether a delivery after this many failed attempts is the last.
func (r *Rules) isLast(attempts int) bool {
	return r.MaxAttempts != Endless && attempts+1 >= r.MaxAttempts
}

// expiredError says why an expired event is not delivered. The text is the same for all events of a
// kind, so that dead letters that expired are one group.
func (r *Rules) expiredError() error {
	return fmt.Errorf("%w: not delivered within %s after it occurred", errExpired, r.Expires)
}

// done is the outcome of an event that is delivered.
func (r *Rules) done() Outcome {
	if r.OnDone == Delete {
		return OutcomeDelete
	}
	return OutcomeDone
}

// expired is the outcome of an event that is expired.
func (r *Rules) expired() Outcome {
	if r.DropExpired {
		return OutcomeDelete
	}
	return OutcomeDead
}

// validateRules reports the invalid rules of an operator.
func validateRules(v *validator, rules map[EventKind]Rules) {
	seen := map[EventKind]bool{}
	for _, kind := range sortedKinds(rules) {
		sub := validator{what: fmt.Sprintf("%s.Rules[%s]", v.what, kind.orGlobal())}
		kind.orGlobal().validate(&sub)
		if seen[kind.orGlobal()] {
			sub.add("AggregateType", fmt.Sprintf("is empty in one key and %s in another, which are the same kind; leave one of them out", Global))
		}
		seen[kind.orGlobal()] = true
		rules[kind].validate(&sub)
		v.errs = append(v.errs, sub.errs...)
	}
}

// sortedKinds are the kinds in the order of errors.
func sortedKinds(rules map[EventKind]Rules) []EventKind {
	kinds := make([]EventKind, 0, len(rules))
	for kind := range rules {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, compareKinds)
	return kinds
}

func compareKinds(a, b EventKind) int {
	return strings.Compare(a.String()+"\x00"+a.Listener, b.String()+"\x00"+b.Listener)
}

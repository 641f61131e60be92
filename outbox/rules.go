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
// delivers the events of a key, whatever their kinds. Both refuse KeyConcurrency, KeyRate and
// Breaker.PerKey. In [WriterOnly] only Retention and MaxDueAge have an effect.
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
	// Retention is how long DONE and DEAD rows of the kind are kept, with [PurgeOptions].Undelivered all rows;
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
	// Fleetwide makes Concurrency and Rate, with the Burst, and KeyConcurrency and KeyRate bounds of all
	// processes together. It needs one of them; without a Concurrency, each process runs as many listeners
	// as [DispatchOptions].Workers. In [MultiNode] the processes that have events of the kind divide the
	// bounds among themselves, through a row of the control table that each reads and renews every
	// second; a delivery asks the database nothing. All processes must have the same rules. The share
	// of a process that died ends after 10 seconds. A process that cannot renew the share begins no
	// deliveries of the kind after 8 seconds; deliveries that run by then go on. In [SingleNode] the
	// process that holds the table has the bounds. Defaults to false: the bounds are of each process.
	Fleetwide bool

	// KeyConcurrency is how many listeners of the kind run at once for a key: a key is an aggregate id among
	// the events of the kind. It is a bound of this process, or with Fleetwide of all processes: then not
	// more processes than KeyConcurrency deliver the kind at the same time, in turns. An event over the
	// bound is deferred by about the time that the deliveries of the key before it take on average. That
	// costs a write, or several while deliveries hang, and no attempt, and takes the worker of no other key.
	// The events of a key are not ordered. At most 10,000. Defaults to no bound.
	KeyConcurrency int
	// KeyRate is how many deliveries of the kind begin in a second for a key, retries included. It is a
	// bound of this process, and n processes together deliver n times as many. With Fleetwide it is a bound
	// of all processes, of which each has an equal part: a key whose events all come to one process gets
	// only this part. Each event over the rate is deferred to the next free slot of the key: it costs a
	// write and no attempt. A tenth of a second's deliveries, at least one in each process, may begin at
	// once, and one more in each process: an event may come late to its slot, and the next in time. From
	// one in a day to 1,000,000 in a second. Defaults to no bound.
	//
	// KeyConcurrency and KeyRate are for [SingleNode] and [MultiNode], and not for a kind with a
	// [BatchListener]. They do not bound events without an aggregate id, [Outbox.Deliver], and further
	// keys while a process remembers 100,000 of them. A key is forgotten soon after the last delivery.
	KeyRate float64

	// MaxDueAge is how long an event of the kind may be due until it is late, at least a second. It changes
	// no delivery: operators see it in [Stats].Late, in the health check, the dashboard, the command line
	// and the metrics. Events of a kind that is paused are not late. Processes tell each other the
	// MaxDueAge in their reports; see [Node].MaxDueAges. Defaults to the MaxDueAge of the health check or
	// the dashboard, and to 5 min elsewhere.
	MaxDueAge time.Duration

	// Breaker pauses the kind when the deliveries fail one after the other. Operators see the pause in
	// [Outbox.Paused]. A kind whose listeners have names (see [Named]) has no Breaker, because one
	// receiver may be down while the others are not. Defaults to no breaker.
	Breaker Breaker
}

// Breaker pauses a kind of event, or with PerKey a key of it, whose deliveries fail one after the other,
// as if the listener had returned [PauseFor] or [PauseKeyFor]: the receiver behind the listener is then
// down, or the listener is broken. See [Rules].Breaker.
//
// A delivery fails if it counts as an attempt: the listener returned an error, panicked, or ran out of
// time. [Dead], [Defer], [PauseFor], an event that expired and an event that a shutdown cut off say
// nothing of the receiver: they neither fail nor end the row of failures. Each event of a batch counts.
// Each process counts the deliveries that it makes, and [Outbox.Deliver] does not count.
//
// When the pause has ended, each process delivers a single event first, as after [PauseFor]. If that
// delivery fails too, the kind is paused again, for twice as long as before, and ten times Pause at
// most. The next delivery that succeeds ends the row of failures, and the next pause is Pause long.
// [Outbox.Resume] ends the pause early; a delivery that fails then pauses the kind again.
type Breaker struct {
	// Failures is how many deliveries fail in a row until the pause begins. Defaults to no breaker; at
	// most 1,000,000.
	Failures int
	// Pause is how long the first pause lasts, from a second to a day. No pause is longer than a day.
	// Defaults to 30 s.
	Pause time.Duration
	// PerKey counts for each key by itself, and pauses the key instead of the kind, as [PauseKeyFor]
	// does: a key is an aggregate id among the events of the kind. Events without an aggregate id do not
	// count. A process forgets a key that has not failed for ten minutes. [Ordered] refuses PerKey, and
	// so does [OrderedByKey], where an event that fails holds back the key anyway. Defaults to false.
	PerKey bool
}

// Limits and the default of [Breaker].
const (
	maxBreakerFailures  = 1_000_000
	defaultBreakerPause = 30 * time.Second
	longestBreakerPause = 10 // times the first pause
)

// or takes the fields that b does not say from other.
func (b Breaker) or(other Breaker) Breaker {
	return Breaker{Failures: defaultTo(b.Failures, other.Failures), Pause: defaultTo(b.Pause, other.Pause), PerKey: b.PerKey || other.PerKey}
}

func (b Breaker) validate(v *validator) {
	v.count("Breaker.Failures", b.Failures, maxBreakerFailures)
	if b.Pause != 0 && (b.Pause < minPauseFor || b.Pause > maxPauseFor) {
		v.add("Breaker.Pause", fmt.Sprintf("is %s; it must be from %s to %s, or zero for %s", b.Pause, minPauseFor, maxPauseFor, defaultBreakerPause))
	}
}

// Endless is the MaxAttempts that retries an event until its delivery succeeds.
const Endless = -1

// NoTimeout is the [Rules].ListenerTimeout for no timeout where the outbox has one.
const NoTimeout time.Duration = -1

// minMaxDueAge is the least [Rules].MaxDueAge. Events that have been due for less are late in no case, so
// [Outbox.Stats] asks nothing about them.
const minMaxDueAge = time.Second

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
		Fleetwide:      r.Fleetwide || s.Fleetwide,
		KeyConcurrency: defaultTo(r.KeyConcurrency, s.KeyConcurrency), KeyRate: defaultTo(r.KeyRate, s.KeyRate),
		MaxDueAge: defaultTo(r.MaxDueAge, s.MaxDueAge),
		Breaker:   r.Breaker.or(s.Breaker),
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
	v.count("KeyConcurrency", r.KeyConcurrency, maxWorkers)
	if r.MaxDueAge != 0 && r.MaxDueAge < minMaxDueAge {
		v.add("MaxDueAge", fmt.Sprintf("is %s; it must be at least %s, or zero for no limit of the kind's own", r.MaxDueAge, minMaxDueAge))
	}
	r.Breaker.validate(v)
	validateRate(v, "Rate", r.Rate)
	validateRate(v, "KeyRate", r.KeyRate)
}

func validateRate(v *validator, field string, rate float64) {
	switch {
	case math.IsNaN(rate) || rate < 0:
		v.add(field, fmt.Sprintf("is %v deliveries a second; it must be positive, or zero for no bound", rate))
	case rate > maxRate:
		v.add(field, fmt.Sprintf("is %v deliveries a second; the limit is %v", rate, maxRate))
	case rate > 0 && rate < minRate:
		v.add(field, fmt.Sprintf("is %v deliveries a second, less than one a day; to stop a kind of event, use Outbox.Pause", rate))
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
	note("KeyConcurrency", r.KeyConcurrency != 0, r.KeyConcurrency)
	note("KeyRate", r.KeyRate != 0, r.KeyRate)
	note("MaxDueAge", r.MaxDueAge != 0, r.MaxDueAge)
	note("Breaker.Failures", r.Breaker.Failures != 0, r.Breaker.Failures)
	note("Breaker.Pause", r.Breaker.Pause != 0, r.Breaker.Pause)
	note("Breaker.PerKey", r.Breaker.PerKey, r.Breaker.PerKey)
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
func (r *Rules) isLimited() bool {
	return r.Concurrency > 0 || r.Rate > 0 || r.Fleetwide && r.boundsKeys()
}

// boundsKeys reports whether the keys of the kind have bounds.
func (r *Rules) boundsKeys() bool { return r.KeyConcurrency > 0 || r.KeyRate > 0 }

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

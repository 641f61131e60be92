package outbox

import (
	"fmt"
	"math"
)

// Limit bounds the deliveries of one kind of event in this process. The kind gets
// workers and a small queue of its own, beside those of [DispatchOptions]. Events for
// which that queue has no room stay in the table, in their order: they cost no
// attempt, no room in the other queues, and none of the other workers. The limit is of
// one process; with n processes, all together deliver n times as many.
//
// Start fails when no listener is registered for the kind.
type Limit struct {
	// Kind is the kind of event, as in topic.Kind(). It is required. An empty
	// aggregate type is [Global].
	Kind EventKind
	// Concurrency is how many listeners of the kind run at once. Defaults to
	// [DispatchOptions].Workers; at most [MaxWorkers]. Without a Rate it is required.
	Concurrency int
	// Rate is how many deliveries begin in a second, retries included. Defaults to
	// no bound. Closing does not wait for deliveries that are not yet allowed to
	// begin: it gives their events back.
	Rate float64
	// Burst is how many deliveries may begin at once after a pause, when Rate is
	// set. With 1, they begin at least 1/Rate seconds apart. Defaults to as many as
	// Rate allows in a tenth of a second, at least 1; at most [MaxQueueCapacity].
	Burst int
}

// MinRate and MaxRate are the bounds of [Limit].Rate: one delivery a day, and a million
// a second.
const (
	MinRate = 1.0 / (24 * 60 * 60)
	MaxRate = 1e6
)

func (o DispatchOptions) validateLimits(v *validator) {
	seen := make(map[EventKind]int, len(o.Limits))
	for i, l := range o.Limits {
		sub := validator{what: fmt.Sprintf("%s.Limits[%d]", v.what, i)}
		l.validate(&sub)
		kind := l.Kind.orGlobal()
		if first, again := seen[kind]; again {
			sub.add("Kind", fmt.Sprintf("is %s, as in Limits[%d]; give one limit with both bounds", kind, first))
		} else {
			seen[kind] = i
		}
		v.errs = append(v.errs, sub.errs...)
	}
}

func (l Limit) validate(v *validator) {
	kind := validator{what: v.what + ".Kind"}
	l.Kind.validate(&kind)
	v.errs = append(v.errs, kind.errs...)
	v.count("Concurrency", l.Concurrency, MaxWorkers)
	v.count("Burst", l.Burst, MaxQueueCapacity)
	switch {
	case math.IsNaN(l.Rate) || l.Rate < 0:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second; it must be positive, or zero for no bound", l.Rate))
	case l.Rate > MaxRate:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second; the limit is %v", l.Rate, MaxRate))
	case l.Rate > 0 && l.Rate < MinRate:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second, less than one a day; to stop a kind of event, use Outbox.Pause", l.Rate))
	case l.Rate == 0 && l.Burst > 0:
		v.add("Burst", fmt.Sprintf("is %d without a Rate; set the Rate too", l.Burst))
	case l.Rate == 0 && l.Concurrency == 0:
		v.add("Rate", "and Concurrency are zero, which bounds nothing; set one of them. To stop a kind of event, use Outbox.Pause")
	}
}

func (l Limit) withDefaults(workers int) Limit {
	l.Kind = l.Kind.orGlobal()
	l.Concurrency = defaultTo(l.Concurrency, workers)
	l.Burst = defaultTo(l.Burst, max(1, int(l.Rate/10)))
	return l
}

// checkLimits reports the limits for whose kinds no listener is registered, or one that
// gets batches, whose size and concurrency are bounds of their own.
func checkLimits(limits []Limit, registry ListenerRegistry) error {
	v := validator{what: "DispatchOptions"}
	for i, l := range limits {
		kind := l.Kind.orGlobal()
		l, found := registry.ListenerFor(kind.AggregateType, kind.EventType)
		if !found {
			v.add(fmt.Sprintf("Limits[%d].Kind", i), fmt.Sprintf("is %s, for which no listener is registered; register one, or correct the kind", kind))
		}
		if _, batched := l.(*batchListener); batched {
			v.add(fmt.Sprintf("Limits[%d].Kind", i), fmt.Sprintf("is %s, whose listener gets batches; its BatchOptions.Concurrency bounds the calls", kind))
		}
	}
	return v.err()
}

package outbox

import (
	"fmt"
	"math"
)

// Limit bounds the deliveries of a kind of event in this process. The kind gets workers and a small
// queue of its own, beside the workers and queues of [DispatchOptions]. Events for which the small
// queue has no room stay in the table, in their order: they cost no attempt, no room in the other
// queues, and no other worker. The limit applies to one process; n processes together deliver n
// times as many.
//
// Start fails when no listener is registered for the kind.
type Limit struct {
	// Kind is the kind of event, as in topic.Kind(), and is required. An empty aggregate type is
	// [Global].
	Kind EventKind
	// Concurrency is how many listeners of the kind run at once. Defaults to
	// [DispatchOptions].Workers; at most 10,000. Required without a Rate.
	Concurrency int
	// Rate is how many deliveries begin in a second, retries included. Defaults to no bound; from
	// one in a day to 1,000,000 in a second. Closing does not wait for deliveries that are not yet
	// allowed to begin: closing gives their events back.
	Rate float64
	// Burst is how many deliveries may begin at once after a pause, when Rate is
	// set. With 1, they begin at least 1/Rate seconds apart. Defaults to as many as
	// Rate allows in a tenth of a second, at least 1; at most 1,000,000.
	Burst int
}

// minRate and maxRate are the bounds of [Limit].Rate: one delivery a day, and a million
// a second.
const (
	minRate = 1.0 / (24 * 60 * 60)
	maxRate = 1e6
)

func (l Limit) validate(v *validator) {
	kind := validator{what: v.what + ".Kind"}
	l.Kind.validate(&kind)
	v.errs = append(v.errs, kind.errs...)
	v.count("Concurrency", l.Concurrency, maxWorkers)
	v.count("Burst", l.Burst, maxQueueCapacity)
	switch {
	case math.IsNaN(l.Rate) || l.Rate < 0:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second; it must be positive, or zero for no bound", l.Rate))
	case l.Rate > maxRate:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second; the limit is %v", l.Rate, maxRate))
	case l.Rate > 0 && l.Rate < minRate:
		v.add("Rate", fmt.Sprintf("is %v deliveries a second, less than one a day; to stop a kind of event, use Outbox.Pause", l.Rate))
	case l.Rate == 0 && l.Burst > 0:
		v.add("Burst", fmt.Sprintf("is %d without a rate; set the rate too", l.Burst))
	case l.Rate == 0 && l.Concurrency == 0:
		v.add("Rate", "is zero, and so is the concurrency, which bounds nothing; set one of the two. To stop a kind of event, use Outbox.Pause")
	}
}

func (l Limit) withDefaults(workers int) Limit {
	l.Kind = l.Kind.orGlobal()
	l.Concurrency = defaultTo(l.Concurrency, workers)
	l.Burst = defaultTo(l.Burst, max(1, int(l.Rate/10)))
	return l
}

// SharedWorkers bound how many listeners run at once in several outboxes together, such as the
// shards that a process delivers for. Make shared workers with [NewSharedWorkers] and put them
// into the [DispatchOptions] of each outbox. They are safe for concurrent use.
//
// They bound the same deliveries as [DispatchOptions].Workers. The calls of a [BatchListener] and
// the deliveries of a kind with a [Limit] have bounds of their own, in each outbox.
//
// An event that waits for a shared worker counts as queued: its lease is renewed, and
// ListenerTimeout does not run yet. Deliveries begin in the order in which the Workers of all
// outboxes ask for a shared worker, each event of a key's run by itself. So a backlog of one outbox
// delays an event of another outbox by at most as many deliveries as the first outbox has Workers.
type SharedWorkers struct {
	n     int
	inUse chan struct{} // holds a token for each listener that runs
}

// NewSharedWorkers makes shared workers for n listeners at once, 1 to 10,000.
// [New] reports another n.
func NewSharedWorkers(n int) *SharedWorkers {
	return &SharedWorkers{n: n, inUse: make(chan struct{}, max(n, 0))}
}

func (s *SharedWorkers) validate(v *validator) {
	if s != nil && (s.n < 1 || s.n > maxWorkers) {
		v.add("SharedWorkers", fmt.Sprintf("are %d; make them with outbox.NewSharedWorkers(n), where n is 1 to %d", s.n, maxWorkers))
	}
}

// workers is the default of [DispatchOptions].Workers.
func (s *SharedWorkers) workers() int {
	if s == nil {
		return defaultWorkers
	}
	return s.n
}

// begin waits until a delivery may begin; false when abort is closed first. The runtime
// serves the senders of a channel in the order in which they came.
func (s *SharedWorkers) begin(abort <-chan struct{}) bool {
	select {
	case s.inUse <- struct{}{}:
		return true
	case <-abort:
		return false
	}
}

func (s *SharedWorkers) end() { <-s.inUse }

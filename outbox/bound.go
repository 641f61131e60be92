package outbox

import (
	"sync/atomic"
	"time"
)

// Drained is the result of [Outbox.Drain].
type Drained struct {
	// Done, Failed, Dead and Deferred count the outcomes that are stored, as the methods Delivered,
	// Failed, Died and Deferred of [Metrics] do: an event with several listeners may count more than
	// once.
	Done, Failed, Dead, Deferred int
	// More says that another Drain would go on at once: n events were taken, or the context ended.
	More bool
	// Left is how many events are due now, counted up to [StatsLimit]: events behind the first n,
	// events that became due meanwhile, and events that cannot be delivered now.
	Left int
	// Paused says how many of Left are paused, or have no listener in this process. Elsewhere says how
	// many of Left are in the hands of another process, or of a process that died, until their leases
	// or ranges expire. Both are counted only if More is false. The other events of Left became due
	// meanwhile, or wait behind an event of their key in [OrderedByKey].
	Paused, Elsewhere int
	// NextDue is when the next delayed event or retry becomes due; zero: there is no such event.
	NextDue time.Time
}

// drain is what an engine knows of the Drain that it serves, and counts the outcomes, as the
// metrics. A nil *drain is no Drain, for take, giveBack and room.
type drain struct {
	Metrics               // without the Close that it may have: the outbox closes the metrics
	n       int           // the most events
	due     time.Time     // the events that are due by then
	taken   atomic.Int64  // events that were taken in hand
	back    atomic.Int64  // of them, events that were given back
	ended   chan struct{} // closed: the poller has ended

	// These are valid when ended is closed.
	err  error
	more bool

	done, failed, dead, deferred atomic.Int64
}

// take notes events that are in hand.
func (d *drain) take(n int) {
	if d != nil {
		d.taken.Add(int64(n))
	}
}

// giveBack notes events that leave without an outcome.
func (d *drain) giveBack(n int) {
	if d != nil {
		d.back.Add(int64(n))
	}
}

// room is how many events of limit may still be taken.
func (d *drain) room(limit int) int {
	if d == nil {
		return limit
	}
	return min(limit, d.n-int(d.taken.Load()-d.back.Load()))
}

// Delivered implements [Metrics].
func (d *drain) Delivered(kind EventKind, latency time.Duration) {
	d.done.Add(1)
	d.Metrics.Delivered(kind, latency)
}

// Failed implements [Metrics].
func (d *drain) Failed(kind EventKind) {
	d.failed.Add(1)
	d.Metrics.Failed(kind)
}

// Died implements [Metrics].
func (d *drain) Died(kind EventKind) {
	d.dead.Add(1)
	d.Metrics.Died(kind)
}

// Deferred implements [Metrics].
func (d *drain) Deferred(kind EventKind) {
	d.deferred.Add(1)
	d.Metrics.Deferred(kind)
}

// result is the result of the engine.
func (d *drain) result() Drained {
	got := Drained{Done: int(d.done.Load()), Failed: int(d.failed.Load()), Dead: int(d.dead.Load()), Deferred: int(d.deferred.Load())}
	select {
	case <-d.ended:
		got.More = d.more
	default:
	}
	return got
}

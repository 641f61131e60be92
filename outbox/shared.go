package outbox

import "fmt"

// SharedWorkers bound how many listeners run at once in several outboxes together, such
// as the shards that one process delivers for. Make one with [NewSharedWorkers] and put
// it into the [DispatchOptions] of each of them. It is safe for concurrent use.
//
// They bound what [DispatchOptions].Workers bounds. The calls of a [BatchListener] and
// the deliveries of a kind with a [Limit] have bounds of their own, in each outbox.
//
// An event that waits for one of the shared workers counts as queued: its lease is
// renewed, and ListenerTimeout does not run yet. Deliveries begin in the order in which
// the Workers of all outboxes ask for one, each event of a key's run by itself. So a
// backlog of one outbox delays an event of another one by at most as many deliveries as
// the first has Workers.
type SharedWorkers struct {
	n     int
	inUse chan struct{} // holds a token for each listener that runs
}

// NewSharedWorkers makes shared workers for n listeners at once, 1 to [MaxWorkers].
// [New] reports another n.
func NewSharedWorkers(n int) *SharedWorkers {
	return &SharedWorkers{n: n, inUse: make(chan struct{}, max(n, 0))}
}

func (s *SharedWorkers) validate(v *validator) {
	if s != nil && (s.n < 1 || s.n > MaxWorkers) {
		v.add("SharedWorkers", fmt.Sprintf("are %d; make them with outbox.NewSharedWorkers(n), where n is 1 to %d", s.n, MaxWorkers))
	}
}

// workers is the default of [DispatchOptions].Workers.
func (s *SharedWorkers) workers() int {
	if s == nil {
		return DefaultWorkers
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

// mayBegin waits for one of the shared workers, and then reports whether a delivery may
// begin.
func (d *Dispatcher) mayBegin(dl *delivery) bool {
	if shared := d.opts.SharedWorkers; shared != nil && dl.batcher == nil && d.lanes.of(dl.env) == nil {
		dl.shares = shared.begin(d.abort)
		if !dl.shares {
			return false
		}
	}
	if d.mayDeliver(dl) {
		return true
	}
	d.endShared(dl)
	return false
}

// endShared gives the shared worker of a delivery, if it has one, to the next.
func (d *Dispatcher) endShared(dl *delivery) {
	if dl.shares {
		dl.shares = false
		d.opts.SharedWorkers.end()
	}
}

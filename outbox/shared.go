package outbox

import "fmt"

// SharedWorkers bound how many listeners run at once in several outboxes together, such as the
// shards that a process delivers for. Make shared workers with [NewSharedWorkers] and put them
// into the [DispatchOptions] of each outbox. They are safe for concurrent use.
//
// They bound the same deliveries as [DispatchOptions].Workers. The calls of a [BatchListener] and
// the deliveries of a kind with a Concurrency or a Rate (see [Rules]) have bounds of their own, in each outbox.
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

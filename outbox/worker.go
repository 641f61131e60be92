package outbox

import (
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

func (d *dispatcher) startWorker(take func() *delivery) {
	d.workers.Add(1)
	go d.work(take)
}

// work is a worker. If a listener ends the goroutine with runtime.Goexit, as a failed test
// assertion does, the delivery fails and another worker goes on.
func (d *dispatcher) work(take func() *delivery) {
	var dl *delivery
	defer func() {
		if r := recover(); r != nil {
			panic(r) // not the listener's panic: nothing here can correct it
		}
		if dl != nil { // Goexit
			d.decide(dl, errGoexit)
			d.finish(dl)
			d.letGo(dl.behind.rest()...)
			go d.work(take)
			return
		}
		d.workers.Done()
	}()
	for {
		next := take()
		if next == nil {
			return
		}
		for next != nil { // the events of a run; other deliveries have no events behind them
			if !d.mayBegin(next) {
				d.letGo(next.rest()...)
				d.wakePoller()
				break
			}
			dl = next
			d.running.Add(1)
			d.deliver(d.listenerCtx, next)
			dl = nil
			d.finish(next)
			next = d.follow(next)
		}
	}
}

// finish hands an outcome to the completer, and logs a retry, which nothing else logs. Close counts
// the outcome as not stored before Close stops to count the listener.
func (d *dispatcher) finish(dl *delivery) {
	if !dl.completed && dl.outcome != OutcomeReleased {
		d.completer.pending.Add(1)
	}
	d.running.Add(-1)
	d.endShared(dl)
	if dl.completed {
		d.track.release(dl)
		d.completer.observe(dl, d.clock.Now())
		return
	}
	if dl.outcome == OutcomeReleased {
		d.holdUp()
		d.letGo(dl)
		d.wakePoller()
		return
	}
	d.logRetry(dl)
	for _, row := range dl.rows() {
		d.logRetry(row)
	}
	if !d.completer.commit.Submit(dl) {
		d.letGo(dl)
		return
	}
	if !d.inOrder {
		return
	}
	d.track.setLast(dl)
	if !dl.outcome.delivered() {
		d.awaitStored()
	}
}

// awaitStored waits until an outcome is stored that takes another statement than DONE, as in
// [Ordered] before the next event is delivered: no statement is to store a later event's outcome
// before this outcome, or a process that dies then would have this event delivered late. A
// listener's own transaction waits too, in [dispatcher.awaitTurn]. Neither waits for an outcome
// that the database refuses.
func (d *dispatcher) awaitStored() {
	d.completer.commit.StoreNow()
	for d.track.lastIsUnstored() && !isClosed(d.abort) {
		wait.Sleep(d.listenerCtx, time.Millisecond)
	}
}

func (d *dispatcher) logRetry(dl *delivery) {
	if dl.err == nil || dl.outcome != OutcomeRetry {
		return
	}
	lines := &d.failures
	if dl.panicked != nil {
		lines = &d.panics
	}
	lines.Add(causeOfFailure(dl), deliveryAttrs(dl, dl.env.Attempts+1)...)
}

// letGo ends deliveries without an outcome: the events are for whoever reads or
// claims them next.
func (d *dispatcher) letGo(ds ...*delivery) {
	d.leases.releaser.Release(d.track.release(ds...))
	if !d.claims {
		d.wakeOthers()
	}
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

// mayBegin waits for a shared worker, and then reports whether a delivery may begin.
func (d *dispatcher) mayBegin(dl *delivery) bool {
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
func (d *dispatcher) endShared(dl *delivery) {
	if dl.shares {
		dl.shares = false
		d.opts.SharedWorkers.end()
	}
}

package outbox

import (
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

func (d *Dispatcher) startWorker(take func() *delivery) {
	d.workers.Add(1)
	go d.work(take)
}

// work is a worker. Should a listener end the goroutine with runtime.Goexit, as
// a failed test assertion does, the delivery fails and another worker goes on.
func (d *Dispatcher) work(take func() *delivery) {
	var dl *delivery
	defer func() {
		if r := recover(); r != nil {
			panic(r) // not the listener's: nothing here can make it good
		}
		if dl != nil { // Goexit
			d.decide(dl, Result{}, errGoexit)
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
		for next != nil { // the events of a run; other deliveries have none behind them
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

// finish hands an outcome to the completer, and logs what nothing else will. Close
// counts the event as one whose outcome is not stored before it stops to count the
// listener.
func (d *Dispatcher) finish(dl *delivery) {
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
// [Ordered] before the next event is delivered: no statement is to store a later event's
// outcome before this one, after which a process that dies would have this event delivered
// late. A listener's own transaction waits too, in [Dispatcher.awaitTurn]. Neither waits for
// an outcome that the database refuses.
func (d *Dispatcher) awaitStored() {
	d.completer.commit.StoreNow()
	for d.track.lastIsUnstored() && !isClosed(d.abort) {
		wait.Sleep(d.listenerCtx, time.Millisecond)
	}
}

func (d *Dispatcher) logRetry(dl *delivery) {
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
func (d *Dispatcher) letGo(ds ...*delivery) {
	d.leases.releaser.Release(d.track.release(ds...))
	if !d.claims {
		d.wakeOthers()
	}
}

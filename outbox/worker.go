package outbox

import (
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

func (d *dispatcher) startWorker(take func() *delivery) {
	d.workers.Add(1)
	go d.work(take)
}

// taker gives deliveries to a worker; nil ends the worker.
func (d *dispatcher) taker() func() *delivery {
	turn := 0
	return func() *delivery {
		for {
			dl := d.queues.Take(turn, d.quit, d.abort)
			turn++
			if dl == nil || !d.passOn(dl) {
				return dl
			}
		}
	}
}

// passOn gives a delivery to the batcher of the listener. False: there is no batcher.
func (d *dispatcher) passOn(dl *delivery) bool {
	if dl.batcher = d.batcherFor(dl.env); dl.batcher == nil {
		return false
	}
	dl.batcher.take(dl)
	return true
}

// batcherFor is nil for an event that is delivered alone.
func (d *dispatcher) batcherFor(env *Envelope) *batcher {
	l := d.batchListenerOf(env)
	if l == nil || d.inOrder {
		return nil
	}
	b, ok := d.batchers.Load(l)
	if !ok {
		b, _ = d.batchers.LoadOrStore(l, &batcher{
			host: d, l: l, ctx: d.listenerCtx, quit: d.quit, abort: d.abort, calls: make(chan struct{}, l.opts.Concurrency),
		})
	}
	return b.(*batcher)
}

// batchListenerOf is nil for an event with another listener. A registry that panics is
// asked again, and the panic reported, in the delivery.
func (d *dispatcher) batchListenerOf(env *Envelope) *batchListener {
	defer func() { _ = recover() }()
	l, _ := d.registry.ListenerFor(env.AggregateType, env.EventType)
	if batch, ok := l.(*batchListener); ok && batch.problem == nil {
		return batch
	}
	return nil
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
			if !d.waitForKey(next) {
				d.deliver(d.listenerCtx, next)
			}
			dl = nil
			d.finish(next)
			next = d.follow(next)
		}
	}
}

// follow returns the event after a delivered event of a run, if the next event is for
// this goroutine. Otherwise another goroutine goes on with the run, or the run ends and
// the rest is given back.
func (d *dispatcher) follow(dl *delivery) *delivery {
	next := dl.behind
	if next == nil {
		return nil
	}
	if !dl.outcome.delivered() || !d.mayFollow(next) {
		d.letGo(next.rest()...)
		return nil
	}
	switch b := d.batcherFor(next.env); {
	case b == dl.batcher || isClosed(d.quit): // draining, no batch waits for more events
		next.batcher = b
		return next
	case b != nil: // no worker waits for a batch
		next.batcher = b
		b.take(next)
	case !d.queueOf(next).Push(next): // events that are in no batch are for the workers
		d.letGo(next.rest()...)
	}
	return nil
}

// mayFollow reports whether a worker may go on with the next event of a run; mayBegin
// then asks whether the delivery may begin. In a run that was taken over, an event may
// kill this process too, so each event waits until the outcomes before it are stored:
// then an event that kills the process is the first of the key, and the next takeover
// counts as an attempt.
func (d *dispatcher) mayFollow(next *delivery) bool {
	for next.takeover && !d.track.isTurn(next) && !isClosed(d.abort) {
		wait.Sleep(d.listenerCtx, time.Millisecond)
	}
	return !isClosed(d.abort)
}

// finish hands an outcome to the completer, and logs a retry, which nothing else logs. Close counts
// the outcome as not stored before Close stops to count the listener.
func (d *dispatcher) finish(dl *delivery) {
	if !dl.completed && dl.outcome != OutcomeReleased {
		d.completer.pending.Add(1)
	}
	d.running.Add(-1)
	d.endShared(dl)
	if d.rules.Load().breaks && d.failures.note(dl, d.rulesOf(dl).Breaker) {
		d.wakePoller() // stores the pause
	}
	d.keys.end(dl)
	if dl.probe {
		d.pauses.probed(dl)
		d.wakePoller()
	}
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
	lines := &d.failed
	if dl.panicked != nil {
		lines = &d.panics
	}
	lines.Add(causeOfFailure(dl), deliveryAttrs(dl, dl.env.Attempts+1)...)
}

// letGo ends deliveries without an outcome: the events are for whoever reads or
// claims them next.
func (d *dispatcher) letGo(ds ...*delivery) {
	d.drain.giveBack(len(ds))
	d.leases.releaser.Release(d.track.release(ds...))
	if !d.claims {
		d.wakeOthers()
	}
}

// mayBegin waits for a shared worker, and then reports whether a delivery may begin.
func (d *dispatcher) mayBegin(dl *delivery) bool {
	if shared := d.opts.SharedWorkers; shared != nil && dl.batcher == nil && d.lanes().of(dl.env) == nil {
		dl.shares = shared.begin(d.abort)
		if !dl.shares {
			return false
		}
	}
	if d.mayDeliver(dl) {
		if d.pauses.begin(dl, d.callsListener) {
			return true
		}
		d.holdUp()
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

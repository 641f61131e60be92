package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox/internal/flow"
	"github.com/outboxkit/outbox-go/outbox/internal/groupcommit"
	"github.com/outboxkit/outbox-go/outbox/internal/hold"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/notify"
	"github.com/outboxkit/outbox-go/outbox/internal/shares"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// dispatcher delivers events: two bounded queues, workers that run interceptors
// and listeners synchronously, and a completer that stores the outcomes. The
// dispatcher is safe for concurrent use.
type dispatcher struct {
	opts     DispatchOptions
	registry ListenerRegistry
	claims   bool // rows are leased, as in [MultiNode]
	byKey    bool // as in [OrderedByKey]
	inOrder  bool // as in [Ordered]: one event at a time
	chain    Listener
	metrics  Metrics
	log      *slog.Logger
	clock    Clock

	options Rules // of the outbox, for kinds without rules
	fits    ruleCheck
	rules   atomic.Pointer[ruleset] // that apply; see [dispatcher.readRules]

	queues    flow.Queues[*delivery]
	made      atomic.Pointer[lanes] // see [dispatcher.lanes]
	room      chan struct{}         // wakes the poller when a queue or a lane has room
	pauses    *pauses
	unheard   *unheard
	rates     *rates
	fleet     *fleet
	failures  *failures
	keys      *keys
	track     *tracker
	completer *completer
	leases    *tableLeases
	rights    *rights // nil unless events are read by ranges
	poller    reader
	batchers  sync.Map   // *batcher by *batchListener
	hold      *hold.Hold // nil in a mode with leases
	// drain is the Drain that the dispatcher serves, and drainOf the dispatcher of the outbox that
	// is drained; nil: an outbox that is started.
	drain   *drain
	drainOf *dispatcher
	// notifications are nil without a notifier.
	notifications *notify.Notifications

	drops, policyPanics      logburst.Burst
	failed, panics, unrouted logburst.ByCause

	// listenerCtx is the base of every delivery's context. The context lives as long as
	// the dispatcher, not as long as a call: Close cancels it.
	listenerCtx     context.Context
	cancelListeners context.CancelFunc

	mu    sync.RWMutex // guards state against enqueueing while closing
	state lifecycle
	// deaf: this process had no listener when it started, and only writes.
	deaf atomic.Bool

	quit    chan struct{} // closed: no more events come, drain
	abort   chan struct{} // closed: take nothing more
	workers sync.WaitGroup
	running atomic.Int32 // listeners
	closing sync.Once
	closed  chan struct{}
	err     error // of Close, once closed is closed
}

type lifecycle uint8

const (
	created lifecycle = iota
	running
	draining // only an [Outbox]
	stopped
)

// problem is why a call is not possible in a state other than created.
func (l lifecycle) problem() error {
	switch l {
	case running:
		return ErrStarted
	case draining:
		return ErrDraining
	default:
		return ErrClosed
	}
}

// Start starts the workers. ctx bounds the start alone. Starting twice is
// harmless; after Close, Start returns [ErrClosed].
func (d *dispatcher) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case running:
		return nil
	case stopped:
		return ErrClosed
	case created, draining:
	}
	if err := d.checkRules(); err != nil {
		return err
	}
	d.readRules(d.drain == nil)
	if own, is := d.registry.(*Registry); is && d.completer.counts != nil {
		d.completer.counts.kinds.Store(newKindCounts(own.places()))
	}
	d.initLanes()
	d.state = running
	d.completer.start(d.opts, d.inOrder)
	d.leases.start()
	if d.rights != nil {
		d.rights.Start()
	}
	for range d.opts.Workers {
		d.startWorker(d.taker())
	}
	for _, l := range d.lanes() {
		if l.share != nil {
			l.share.Start()
		}
		for range l.concurrency {
			d.startWorker(d.laneTaker(l))
		}
	}
	return nil
}

// readRules finds out which rules apply: the operator's, the listeners', and the outbox's. With
// seal, the registry refuses further rules.
func (d *dispatcher) readRules(seal bool) {
	listeners := rulesIn(d.registry, seal)
	if d.rules.Load() == nil || listeners != nil { // only listeners get further rules
		d.rules.Store(resolve(d.options, d.opts.Rules, listeners))
	}
}

// checkRules reports rules that cannot apply.
func (d *dispatcher) checkRules() error {
	what := "Config.Mode.Dispatch"
	if d.inOrder { // Ordered has the fields of Dispatch itself
		what = "Config.Mode"
	}
	return d.fits.atStart(what, d.opts.Rules, d.registry)
}

// takeIn takes events that the poller found: an event alone, or a run up to the first event that
// stays in the table. If an event is in hand, its delivery goes on under the lease of the copy, and
// the run ends there. takeIn returns how many of the leases it took; the others are to be given back.
// ok is false when there is no room, or in [Ordered] when an event in front is given back; an event
// that is refused for its kind leaves room for other events.
func (d *dispatcher) takeIn(run []delivery) (taken int, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.state != running {
		return 0, false
	}
	n := 0
	for taken < len(run) {
		acquired, comes := d.track.acquire(&run[n])
		taken++
		if comes && d.inOrder { // a copy, and the rows behind it wait
			return taken, false
		}
		if !acquired { // a copy
			break
		}
		if d.leaves(run[n].env) {
			d.track.release(&run[n])
			taken--
			break
		}
		n++
	}
	first := &run[0]
	if n == 0 {
		return taken, taken > 0 || d.passesOver(first.env)
	}
	link(run[:n])
	kind := kindOf(first.env) // before a worker has the events
	var behind []EventKind
	for i := range run[1:n] {
		behind = append(behind, kindOf(run[1+i].env))
	}
	if !d.queueUp(first) {
		d.track.release(first.rest()...)
		return 0, d.passesOver(first.env)
	}
	d.drain.take(n)
	d.metrics.ColdEnqueued(kind)
	for _, kind := range behind {
		d.metrics.ColdEnqueued(kind)
	}
	return taken, true
}

// coldRoom is the room in the cold queue.
func (d *dispatcher) coldRoom() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.state != running {
		return 0
	}
	return d.queues.Cold.Room()
}

// inHandLimit is how many events a process has in hand at most: in the queues, with
// the workers, in batches, and on their way to the store.
func (d *dispatcher) inHandLimit() int64 {
	waiting := d.queues.Hot.Capacity + d.queues.Cold.Capacity
	for _, l := range d.lanes() {
		waiting += l.Capacity + l.Spare + l.concurrency
	}
	return int64(waiting + d.opts.Workers + d.batchesInHand() + groupcommit.InHand)
}

// batchesInHand is how many deliveries the batch listeners may have under way.
func (d *dispatcher) batchesInHand() (deliveries int) {
	routes, ok := d.registry.(*Registry)
	if !ok {
		return 0
	}
	for l := range routes.batchListeners() {
		deliveries += l.inHand()
	}
	return deliveries
}

// isIdle reports whether nothing is in hand, and no lease is still to be given back.
func (d *dispatcher) isIdle() bool { return d.track.isEmpty() && d.leases.releaser.IsIdle() }

// isNew reports whether the dispatcher was never started.
func (d *dispatcher) isNew() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.state == created
}

// holds reports whether this process may deliver from the table.
func (d *dispatcher) holds() bool { return !d.deaf.Load() && (d.hold == nil || d.hold.Holds()) }

// term is the term of the present hold.
func (d *dispatcher) term() int64 {
	if d.hold == nil {
		return 0
	}
	return d.hold.Term()
}

// Close stops accepting events, lets the queued events be delivered for
// DrainTimeout, then cancels the listeners' context and gives the rest back.
// A listener that has not returned after another DrainTimeout and a second is left
// running, because nothing can end it; the error reports it. When ctx ends earlier,
// the listeners' context is cancelled at once, and they still have that time to
// return. Storing the last outcomes may take another DrainTimeout. A second Close
// waits for the first Close, whatever ctx it gets, and returns the same error. A
// listener that calls Close waits for itself, until that time is over.
func (d *dispatcher) Close(ctx context.Context) error {
	d.closing.Do(func() { go d.shutdown(ctx) })
	<-d.closed
	return d.err
}

func (d *dispatcher) shutdown(ctx context.Context) {
	defer close(d.closed)
	defer d.policyPanics.Flush()
	defer d.unrouted.Flush()
	defer d.pauses.flush()
	defer d.keys.flush()
	defer d.drops.Flush()
	defer d.completer.deaths.Flush()
	defer d.panics.Flush()
	defer d.failed.Flush()
	d.mu.Lock()
	was := d.state
	d.state = stopped
	d.mu.Unlock()
	if was != running {
		d.cancelListeners()
		return
	}
	close(d.quit)
	idle := make(chan struct{})
	go func() { d.workers.Wait(); close(idle) }()

	var errs []error
	if !wait.For(ctx, idle, d.opts.DrainTimeout) {
		close(d.abort)
		d.cancelListeners()
		d.giveBack()
		// Workers that are not idle then, without a listener, wait for a database
		// that is away to take their outcomes.
		if !wait.For(context.Background(), idle, d.opts.DrainTimeout+wait.Grace) && d.running.Load() > 0 {
			errs = append(errs, errors.New("outbox: closing the dispatcher: listeners still run although their context was cancelled; their events will be delivered again"))
		}
	}
	d.cancelListeners()
	d.giveBack()                // events that came after the workers had looked
	d.completer.commit.Refuse() // the answer of a listener that still runs comes too late
	d.leases.keeper.Close()
	unstored := d.completer.close(d.opts.DrainTimeout)
	ranges, given := d.giveUpRanges(), d.closeShares() // while the releaser closes
	unreleased := d.leases.releaser.Close(d.opts.DrainTimeout)
	if err := <-ranges; err != nil {
		errs = append(errs, fmt.Errorf("outbox: closing the dispatcher: giving up ranges of events, which other nodes deliver when the ranges expire, in %s at the latest: %w", rangeLasts, err))
	}
	if err := <-given; err != nil {
		errs = append(errs, fmt.Errorf("outbox: closing the dispatcher: giving up shares in fleet-wide limits, which other nodes get when the shares expire, in %s at the latest: %w", shares.Lasts, err))
	}
	if unstored > 0 {
		errs = append(errs, fmt.Errorf("outbox: closing the dispatcher: %d outcomes could not be stored, or the database did not say that they are; their events may be delivered again", unstored))
	}
	if unreleased > 0 {
		errs = append(errs, fmt.Errorf("outbox: closing the dispatcher: %d leases could not be given back, or the database did not say that they are; other nodes deliver their events when the leases expire, %s after they began, at the latest", unreleased, d.leases.lasts))
	}
	d.err = errors.Join(errs...)
}

// giveUpRanges begins to close the rights to ranges, and returns the result.
func (d *dispatcher) giveUpRanges() <-chan error {
	result := make(chan error, 1)
	if d.rights == nil {
		close(result)
		return result
	}
	go func() { result <- d.rights.Close(d.opts.DrainTimeout) }()
	return result
}

// giveBack lets go of the events that are still queued.
func (d *dispatcher) giveBack() {
	var left []*delivery
	for dl := d.queues.TakeLeft(); dl != nil; dl = d.queues.TakeLeft() {
		left = append(left, dl.rest()...)
	}
	for _, l := range d.lanes() {
		for dl := l.TakeLeft(); dl != nil; dl = l.TakeLeft() {
			left = append(left, dl)
		}
	}
	for _, b := range d.batchers.Range {
		left = append(left, b.(*batcher).takeLeft()...)
	}
	d.letGo(left...)
}

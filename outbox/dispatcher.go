package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// DispatcherConfig makes a [Dispatcher] by hand; [New] does it for most users.
type DispatcherConfig struct {
	// DB, Store and Registry are required.
	DB       DB
	Store    Store
	Registry ListenerRegistry
	// Options tune the workers.
	Options DispatchOptions
	// Claim says that rows are leased, as in [MultiNode]; the poller must be
	// given the same owner. Nil: no leases.
	Claim *ClaimOptions
	// OnDone says what becomes of a delivered row.
	OnDone OnDone
	// Interceptors run in the order given.
	Interceptors []Interceptor
	// RetryPolicy defaults to ExponentialBackoff(200 ms, 1 min), Metrics to
	// none, Logger to slog.Default(), Clock to the system's.
	RetryPolicy RetryPolicy
	Metrics     Metrics
	Logger      *slog.Logger
	Clock       Clock
}

// Dispatcher delivers events: two bounded queues, workers that run interceptors
// and listeners synchronously, and a completer that stores the outcomes. It is
// the poller's [PollHandler] and safe for concurrent use.
type Dispatcher struct {
	opts     DispatchOptions
	claim    *ClaimOptions
	doneKind Outcome
	routes   ListenerRegistry
	chain    Listener
	retry    RetryPolicy
	metrics  Metrics
	log      *slog.Logger
	clock    Clock

	queues
	track    *tracker
	complete *completer
	keeper   *leaseKeeper // nil without leases, like doubts
	doubts   *doubts
	poller   atomic.Pointer[Poller]

	// claiming holds a token while rows are claimed and taken in, or while leases
	// are given up that may be found claimed anew: one would undo the other.
	claiming chan struct{}

	drops, policyPanics burst

	// listenerCtx is the base of every delivery's context. It belongs to the
	// dispatcher's lifetime, not to a call's: Close cancels it.
	listenerCtx     context.Context
	cancelListeners context.CancelFunc

	mu    sync.RWMutex // guards state against enqueueing while closing
	state lifecycle

	quit    chan struct{} // closed: no more events come, drain
	abort   chan struct{} // closed: take nothing more
	workers sync.WaitGroup
	closing sync.Once
	closed  chan struct{}
	err     error // of Close, once closed is closed
}

type lifecycle uint8

const (
	created lifecycle = iota
	running
	stopped
)

// NewDispatcher makes a dispatcher. It reports everything that is wrong with
// the config at once. Nothing runs before Start.
func NewDispatcher(cfg DispatcherConfig) (*Dispatcher, error) {
	v := validator{what: "DispatcherConfig"}
	requireStore(&v, cfg.DB, cfg.Store)
	if isNil(cfg.Registry) {
		v.add("Registry", "is required; make one with outbox.NewRegistry")
	}
	options := validator{what: "DispatchOptions"}
	cfg.Options.validate(&options)
	claim := validator{what: "ClaimOptions"}
	if cfg.Claim != nil {
		cfg.Claim.validate(&claim)
	}
	handler, chainErr := chain(cfg.Interceptors, cfg.Registry)
	if err := errors.Join(v.err(), options.err(), claim.err(), chainErr); err != nil {
		return nil, err
	}
	d := &Dispatcher{
		opts: cfg.Options.withDefaults(), doneKind: OutcomeDone, routes: cfg.Registry, chain: handler,
		retry: cfg.RetryPolicy, metrics: metricsOr(cfg.Metrics), log: loggerOr(cfg.Logger), clock: clockOr(cfg.Clock),
		quit: make(chan struct{}), abort: make(chan struct{}), closed: make(chan struct{}),
		claiming: make(chan struct{}, 1),
	}
	d.track = newTracker(d.wakePoller)
	if isNil(d.retry) {
		d.retry = ExponentialBackoff(0, 0)
	}
	if cfg.OnDone == Delete {
		d.doneKind = OutcomeDelete
	}
	d.drops = burst{log: d.log, level: slog.LevelWarn, message: "outbox: events went past the hot queue, the poller brings them"}
	d.policyPanics = burst{log: d.log, level: slog.LevelError, message: "outbox: the retry policy panicked"}
	d.initQueues(d.opts.HotCapacity, d.opts.ColdCapacity, d.opts.Workers)
	d.listenerCtx, d.cancelListeners = context.WithCancel(withDispatcher(context.Background(), d))
	d.complete = newCompleter(d, cfg.DB, cfg.Store)
	if cfg.Claim != nil {
		c := cfg.Claim.withDefaults()
		d.claim = &c
		d.complete.owner = c.Owner
		d.keeper = newLeaseKeeper(d, cfg.DB, cfg.Store)
		d.doubts = newDoubts(d)
	}
	return d, nil
}

// Start starts the workers. ctx bounds the start alone. Starting twice is
// harmless; after Close it is [ErrClosed].
func (d *Dispatcher) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: starting the dispatcher: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case running:
		return nil
	case stopped:
		return ErrClosed
	case created:
	}
	d.state = running
	d.complete.start()
	if d.keeper != nil {
		d.keeper.start()
		d.doubts.start()
	}
	for range d.opts.Workers {
		d.workers.Add(1)
		go d.work(0)
	}
	return nil
}

// EnqueueHot offers an event whose transaction committed. False: the dispatcher
// is not running or the queue is full, and the poller has to bring the event. A
// copy of an event that is in hand already is dropped, which is true.
func (d *Dispatcher) EnqueueHot(env Envelope) bool {
	return d.enqueue(d.hot, &env)
}

// Handle offers an event that was read from the table: it implements
// [PollHandler]. A copy of an event that is in hand already is dropped.
func (d *Dispatcher) Handle(env Envelope) bool {
	return d.enqueue(d.cold, &env)
}

// takeOver is Handle for an event that may have been taken over from a node that
// died, and takeoverRoom how many of those it would take now.
func (d *Dispatcher) takeOver(env Envelope) bool { return d.enqueue(d.taken, &env) }

func (d *Dispatcher) takeoverRoom() int { return d.track.takeoverRoom(d.opts.Workers) }

func (d *Dispatcher) enqueue(queue chan *Envelope, env *Envelope) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.state != running {
		return false
	}
	if taken, doomed := d.track.acquire(env, queue == d.taken); !taken {
		if doomed && d.claim != nil && queue != d.hot {
			// The poller has just leased the row, and nothing here will use that.
			d.complete.releaseLeases([]string{env.EventID}, time.Time{})
		}
		return true
	}
	if !offer(queue, env) {
		d.track.release(env.EventID)
		return false
	}
	if queue == d.hot {
		d.metrics.HotEnqueued(kindOf(env))
	} else {
		d.metrics.ColdEnqueued(kindOf(env))
	}
	return true
}

// AvailableCapacity is the room in the cold queue; it implements [PollHandler].
func (d *Dispatcher) AvailableCapacity() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.state != running {
		return 0
	}
	return cap(d.cold) - len(d.cold)
}

// Depths are the numbers of events that wait in the queues.
func (d *Dispatcher) Depths() (hot, cold int) { return d.depths() }

// Deliver delivers one event synchronously, without queues: it runs the
// interceptors and the listener, stores the outcome, and returns it. The error
// is the store's; the delivery's own is in the result. It needs no Start.
func (d *Dispatcher) Deliver(ctx context.Context, env Envelope) (Delivery, error) {
	o := d.deliver(withDispatcher(ctx, d), &env)
	err := d.complete.storeOne(ctx, &o)
	return o.delivery(), err
}

// work is a worker. Should a listener end the goroutine with runtime.Goexit, as
// a failed test assertion does, the delivery fails and another worker goes on.
func (d *Dispatcher) work(turn int) {
	var env *Envelope
	defer func() {
		if r := recover(); r != nil {
			panic(r) // not the listener's: nothing here can make it good
		}
		if env != nil { // Goexit
			o := d.decide(env, Result{}, errors.New("the listener ended its goroutine (runtime.Goexit)"))
			d.finish(&o)
			go d.work(turn)
			return
		}
		d.workers.Done()
	}()
	for {
		next := d.take(turn, d.quit, d.abort)
		if next == nil {
			return
		}
		turn++
		env = next
		o := d.deliver(d.listenerCtx, env)
		env = nil
		d.finish(&o)
	}
}

// finish hands an outcome to the completer, and logs what nothing else will.
func (d *Dispatcher) finish(o *outcome) {
	if o.err != nil && o.kind == OutcomeRetry {
		attrs := deliveryAttrs(o, o.env.Attempts+1)
		if o.panicked != nil {
			d.log.Error("outbox: a listener panicked", attrs...)
		} else {
			d.log.Warn("outbox: delivery failed, it will be tried again", attrs...)
		}
	}
	if o.kind == OutcomeReleased && d.claim == nil {
		d.track.release(o.env.EventID) // nothing to store: the row is as it was
		return
	}
	if !d.complete.submit(*o) {
		d.track.release(o.env.EventID)
	}
}

// Close stops accepting events, lets the queued ones be delivered for
// DrainTimeout, then cancels the listeners' context and gives the rest back.
// Listeners that return neither then nor in another DrainTimeout and a second
// are left alone, for nothing can end them, and the error tells of them. When ctx
// ends earlier, their context is cancelled at once; they have as long to return
// all the same. Storing the last outcomes may take another DrainTimeout. Closing
// again waits for the first close, whatever its own ctx, and returns its error. A
// listener that calls Close waits for itself, until that time is up.
func (d *Dispatcher) Close(ctx context.Context) error {
	d.closing.Do(func() { go d.shutdown(ctx) })
	<-d.closed
	return d.err
}

func (d *Dispatcher) shutdown(ctx context.Context) {
	defer close(d.closed)
	defer d.policyPanics.flush()
	defer d.drops.flush()
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
	if !waitFor(ctx, idle, d.opts.DrainTimeout) {
		close(d.abort)
		d.cancelListeners()
		ended := waitFor(context.Background(), idle, d.opts.DrainTimeout)
		if !ended {
			// Workers may wait for a database that is away to take their outcomes.
			d.complete.cancel()
			ended = waitFor(context.Background(), idle, closeGrace)
		}
		if !ended {
			errs = append(errs, errors.New("outbox: closing the dispatcher: listeners still run although their context was cancelled; their events will be delivered again"))
		}
	}
	d.cancelListeners()
	enough := time.AfterFunc(d.opts.DrainTimeout, d.complete.cancel)
	defer enough.Stop()
	d.giveBack()
	d.complete.refuse() // what a listener that still runs answers comes too late
	if d.keeper != nil {
		d.keeper.close()
	}
	errs = append(errs, d.complete.close(d.opts.DrainTimeout))
	if d.doubts != nil {
		d.doubts.close(d.opts.DrainTimeout)
	}
	d.err = errors.Join(errs...)
}

// giveBack releases what is still queued.
func (d *Dispatcher) giveBack() {
	for {
		env := d.takeLeft()
		if env == nil {
			return
		}
		d.finish(&outcome{env: env, kind: OutcomeReleased, mark: Mark{EventID: env.EventID}})
	}
}

// waitFor waits until done is closed; false when ctx or the time ends first.
func waitFor(ctx context.Context, done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func requireStore(v *validator, db DB, store Store) {
	if isNil(db) {
		v.add("DB", "is required: a *sql.DB, or what embeds one")
	}
	if isNil(store) {
		v.add("Store", "is required; take one from package sqlstore")
		return
	}
	if s, ok := store.(interface{ Validate() error }); ok {
		if err := s.Validate(); err != nil {
			v.errs = append(v.errs, fmt.Errorf("outbox: %s.Store: %w", v.what, err))
		}
	}
}

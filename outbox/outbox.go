package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/hold"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/notify"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Outbox has a writer and, depending on the mode, a dispatcher, a poller and a purger. Make an
// outbox with [New], register listeners, start it, write through an adapter, close it. An outbox is
// safe for concurrent use.
type Outbox struct {
	db         DB
	store      Store
	writer     *Writer
	dead       *DeadLetters
	registry   *Registry // nil when Config.Registry has another type
	dispatcher *dispatcher
	poller     *poller
	purger     *purger
	replayer   *replayer  // nil in WriterOnly and in a Drain
	hold       *hold.Hold // in SingleNode and Ordered, else nil
	announcer  *announcer
	writerName string // in WriterOnly
	// notifications is nil without a notifier.
	notifications *notify.Notifications
	metrics       Metrics
	counts        *counts
	clock         Clock
	log           *slog.Logger
	mode          Mode
	version       string  // of the program
	builder       builder // makes the engine of a Drain
	purge         *PurgeOptions
	maxDueAges    func() map[EventKind]time.Duration // of the rules of this process

	starting sync.Mutex      // held by Start
	ending   context.Context // ends when Close is called
	end      context.CancelFunc

	mu      sync.Mutex
	state   lifecycle
	started bool
	drained chan struct{} // closed at the end of the last Drain; nil: there was no Drain
	closing sync.Once
	closed  chan struct{}
	err     error // the result of Close; valid when closed is closed
}

// Writer returns the writer, which writes events in the transaction that a context
// carries. Adapters need it too.
func (o *Outbox) Writer() *Writer { return o.writer }

// DeadLetters returns the value that lists, replays and deletes dead events.
func (o *Outbox) DeadLetters() *DeadLetters { return o.dead }

// Metrics returns [Config].Metrics, or a [NopMetrics] if Config.Metrics is nil.
func (o *Outbox) Metrics() Metrics { return o.metrics }

// Register adds listeners. Register fails with [ErrStarted] after Start, so that no event is
// delivered before its listener is registered, with [ErrDraining] during a Drain, and with
// [ErrDuplicateListener] for a second listener of a pair of types unless both have names; see [Named].
func (o *Outbox) Register(bindings ...Binding) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != created {
		return fmt.Errorf("outbox: registering a listener: %w", o.state.problem())
	}
	if o.registry == nil {
		return &FieldError{Field: "Config.Registry", Problem: "is not an *outbox.Registry; register listeners there"}
	}
	return o.registry.Register(bindings...)
}

// Start checks the table and starts the parts that the mode has. Start fails when the table or a
// column is missing, when the store is for another kind of database, or when the database does not
// answer within 30 s; the error says what to do. A process that has no listener then only writes, as in
// [WriterOnly], also if the registry gets listeners later. ctx limits only the start. Starting twice is
// harmless. After a failed check you may call Start again; after Close, or when Close is called
// meanwhile, Start fails with [ErrClosed], and during a [Outbox.Drain] with [ErrDraining].
func (o *Outbox) Start(ctx context.Context) error {
	o.starting.Lock()
	defer o.starting.Unlock()
	if state := o.lifecycle(); state != created {
		return startedBefore(state)
	}
	err := o.check(ctx) // without mu: Close does not wait for it
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending.Err() != nil { // Close ends this context before anything else
		o.undoCheck(err)
		return ErrClosed
	}
	if err != nil {
		return err
	}
	return o.startParts(ctx)
}

func (o *Outbox) lifecycle() lifecycle {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// startedBefore is the answer to Start in another state than created.
func startedBefore(state lifecycle) error {
	if state == running {
		return nil
	}
	return state.problem()
}

// undoCheck gives up the hold that a check got while Close was called.
func (o *Outbox) undoCheck(failed error) {
	if o.hold != nil && failed == nil {
		_ = o.hold.Release()
	}
}

// delivers reports whether this process delivers events: it has a mode that does, and had a listener
// when it started.
func (o *Outbox) delivers() bool { return o.dispatcher != nil && !o.dispatcher.deaf.Load() }

// listen decides whether this process delivers. Without a listener it only writes, so that it takes no
// events from processes that have listeners.
func (o *Outbox) listen() {
	if o.dispatcher == nil || o.registry == nil {
		return
	}
	o.dispatcher.deaf.Store(o.registry.Len() == 0)
}

// startParts is called with mu held.
func (o *Outbox) startParts(ctx context.Context) error {
	o.state = running
	if o.hold != nil && o.delivers() {
		o.hold.Start()
	}
	var starts []func(context.Context) error
	if o.delivers() {
		starts = append(starts, o.dispatcher.Start, o.poller.Start)
		if o.replayer != nil {
			starts = append(starts, o.replayer.Start)
		}
	}
	if o.purger != nil {
		starts = append(starts, o.purger.Start)
	}
	if o.notifications != nil {
		starts = append(starts, o.notifications.Start)
	}
	if o.builder.drain == nil {
		starts = append(starts, o.announcer.loop.Start)
	}
	if err := inTurn(ctx, starts); err != nil {
		o.state = stopped
		o.closing.Do(func() { o.shutdown(ctx) })
		return fmt.Errorf("outbox: starting: %w", errors.Join(err, o.err))
	}
	o.started = true
	if o.builder.drain != nil {
		return nil
	}
	if o.dispatcher != nil && !o.delivers() {
		o.log.Warn("outbox: this process only writes because no listener is registered; register listeners, or use the mode WriterOnly")
	}
	o.logStart()
	return nil
}

// inTurn starts parts until one fails: the parts behind would fail alike, as when ctx has ended.
func inTurn(ctx context.Context, starts []func(context.Context) error) error {
	for _, start := range starts {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// check asks the database whether the table fits, and for the hold.
func (o *Outbox) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: starting: %w", err)
	}
	o.listen()
	if o.delivers() {
		if err := o.dispatcher.checkRules(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	defer context.AfterFunc(o.ending, cancel)()
	if err := o.store.Check(ctx, o.db, o.delivers()); err != nil {
		return err
	}
	if o.dispatcher != nil {
		if err := o.dispatcher.pauses.read(ctx); err != nil {
			return err
		}
	}
	switch {
	case !o.delivers():
		return nil
	case o.hold != nil:
		err := o.hold.Try(ctx)
		if err != nil { // the database may have carried out the statement
			_ = o.hold.Release() // fails as Try did; the hold expires
		}
		return err
	default:
		return o.poller.check(ctx)
	}
}

// logStart logs the configuration in one line.
func (o *Outbox) logStart() {
	attrs := []any{logKeyMode, modeName(o.mode)}
	if s, ok := o.store.(interface {
		Dialect() string
		Table() string
	}); ok {
		attrs = append(attrs, logKeyDatabase, s.Dialect(), logKeyTable, s.Table())
	}
	if o.dispatcher != nil {
		attrs = append(attrs, logKeyWorkers, o.dispatcher.opts.Workers, logKeyInterval, o.poller.opts.Interval.String())
	}
	attrs = append(attrs, logKeyOwner, o.owner())
	if o.purge != nil {
		attrs = append(attrs, logKeyRetention, o.purge.withDefaults().Retention.String())
	} else {
		attrs = append(attrs, logKeyRetention, "no purge")
	}
	o.log.Info("outbox: started", attrs...)
}

// node is the report of this process.
func (o *Outbox) node() Node {
	n := Node{Owner: o.owner(), Mode: modeName(o.mode), Version: o.version, MaxDueAges: reported(o.maxDueAges()), Totals: o.counts.totals()}
	if !o.delivers() {
		n.Mode = modeName(WriterOnly{})
		return n
	}
	if o.registry != nil {
		if n.Kinds = o.registry.list(); sizeOf(n.Kinds) > maxReportedKinds {
			n.Kinds = nil
		}
	}
	n.Unheard = o.dispatcher.unheard.list()
	for sizeOf(n.Unheard) > maxReportedKinds {
		n.Unheard = n.Unheard[:len(n.Unheard)-1]
	}
	n.LastPoll = o.poller.lastPoll()
	if !n.LastPoll.IsZero() {
		n.LastPoll = storedTime(n.LastPoll)
	}
	n.HotDepth, n.ColdDepth = o.dispatcher.depths()
	n.Leases = len(o.dispatcher.track.leases())
	return n
}

// maxReportedKinds is how many bytes of names of kinds a node reports in a list.
const maxReportedKinds = 8 << 10

// reported are as many limits of lateness as have room in the report of a node, by kind.
func reported(ages map[EventKind]time.Duration) (list []KindAge) {
	size := 0
	for _, kind := range slices.SortedFunc(maps.Keys(ages), compareKinds) {
		if size += sizeOf([]EventKind{kind}); size > maxReportedKinds {
			break
		}
		list = append(list, KindAge{kind, ages[kind]})
	}
	return list
}

// owner is the name of this process's leases and of its hold. In WriterOnly, which has neither,
// owner is a name of the same form.
func (o *Outbox) owner() string {
	if o.dispatcher == nil {
		return o.writerName
	}
	return o.dispatcher.leases.names.Owner
}

// Close stops polling, delivers queued events for up to DrainTimeout, then cancels the listeners'
// context. Close releases the events of interrupted deliveries, which do not count as failed
// attempts. If ctx ends earlier, draining ends then. Transactions that are still open may end
// later; other nodes or the next start deliver their events. Close closes every part even if a part
// fails. Close may be called before Start.
//
// After ctx has ended, Close still waits for listeners that ignore the end of their context, for
// another DrainTimeout and a second, and then as long again for the database to store outcomes.
// Altogether Close takes at most four times DrainTimeout and 7 s, and 10 s more while a database
// driver ignores the end of its context; the error names the parts that have not ended, and counts
// the outcomes not stored and the leases not given back. Close does not wait for Start. A second
// Close waits for the first, whatever its own ctx, and returns the same error. A listener must not
// call Close: the listener would wait for itself until that time is over.
func (o *Outbox) Close(ctx context.Context) error {
	o.end()
	o.mu.Lock()
	o.state = stopped
	o.mu.Unlock()
	o.closing.Do(func() {
		o.awaitDrain()
		o.shutdown(ctx)
	})
	<-o.closed
	return o.err
}

// shutdown closes the parts. A start that fails calls it with mu held.
func (o *Outbox) shutdown(ctx context.Context) {
	defer close(o.closed)
	var errs []error
	began := time.Now()
	// A statement of a driver that ignores the end of its context does not hold up the
	// other parts.
	soon, cancel := context.WithTimeout(ctx, claimGrace)
	defer cancel()
	if o.purger != nil {
		errs = append(errs, o.purger.Close(soon))
	}
	if o.replayer != nil {
		errs = append(errs, o.replayer.Close(soon))
	}
	if o.poller != nil {
		errs = append(errs, o.poller.Close(soon))
	}
	if o.dispatcher != nil {
		errs = append(errs, o.dispatcher.Close(ctx))
	}
	o.announcer.withdraw() // while the next parts close
	if o.hold != nil {
		if err := o.hold.Close(); err != nil {
			errs = append(errs, fmt.Errorf("outbox: releasing the hold on the table: %w", err))
		}
	}
	if o.notifications != nil { // the other parts have given back events for other processes
		if o.dispatcher != nil && o.started { // the retries and the delayed events of this process are theirs from now on
			o.notifications.Notify()
		}
		errs = append(errs, o.closeNotifications(ctx))
	}
	errs = append(errs, o.announcer.close())
	if c, ok := o.metrics.(io.Closer); ok {
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("outbox: closing the metrics: %w", err))
		}
	}
	if o.err = errors.Join(errs...); o.err == nil && o.started && o.builder.drain == nil {
		o.log.Info("outbox: closed", logKeyLasted, durationText(time.Since(began)))
	}
}

func (o *Outbox) closeNotifications(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wait.Grace)
	defer cancel()
	return o.notifications.Close(ctx)
}

// Closing returns a channel that is closed when [Outbox.Close] is called. Goroutines that read from the
// outbox, such as those of package dashboard, end then.
func (o *Outbox) Closing() <-chan struct{} { return o.ending.Done() }

// Run starts the outbox, waits for ctx to end and closes the outbox. Run suits errgroups. While the
// database cannot be reached, Run tries to start again every second until ctx ends, so a service
// may start before its database; Start fails instead. Run returns the error of Start or Close, not
// the error of the context.
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.startOnceReachable(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return o.Close(context.WithoutCancel(ctx))
}

// startPause is how long Run waits for a database before it tries to start again.
const startPause = time.Second

func (o *Outbox) startOnceReachable(ctx context.Context) error {
	waiting := logburst.Burst{Log: o.log, Level: slog.LevelWarn, Message: "outbox: starting again in a second because the database cannot be reached"}
	defer waiting.Flush()
	for {
		err := o.Start(ctx)
		if err == nil || ctx.Err() != nil || !sqlerr.IsUnreachable(err) {
			return err
		}
		waiting.Add(1, logKeyError, err.Error())
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return err
		}
	}
}

// Deliver delivers an event on the caller's goroutine as a worker does: Deliver runs the
// interceptors and the listener, stores the outcome, and returns the result. The error is the
// store's; the listener's error is in the result. Deliver is for tests, such as outboxtest.Drain,
// and for programs that call it instead of Start: after Start it fails with [ErrStarted], after
// Close with [ErrClosed].
func (o *Outbox) Deliver(ctx context.Context, env Envelope) (Delivery, error) {
	if o.dispatcher == nil {
		return Delivery{}, errDeliversNothing
	}
	if state := o.lifecycle(); state != created {
		return Delivery{}, fmt.Errorf("outbox: delivering an event by hand: %w", state.problem())
	}
	if err := o.dispatcher.checkRules(); err != nil {
		return Delivery{}, err
	}
	o.dispatcher.readRules(false)
	dl := &delivery{env: &env}
	o.dispatcher.deliver(ctx, dl)
	err := o.dispatcher.completer.storeOne(ctx, dl)
	if _, unpaused := o.dispatcher.pauses.storeAsked(ctx); unpaused != nil {
		err = errors.Join(err, fmt.Errorf("outbox: storing the pause of %s: %w", kindOf(dl.env), unpaused))
	}
	return dl.public(), err
}

// Wake makes the poller poll now, for example after you changed rows by hand. When another process
// delivers, [Config].Notifier wakes that process.
func (o *Outbox) Wake() {
	if o.poller != nil {
		o.poller.startOver()
	}
	if !o.poller.delivers() || o.notifications.IsUnstarted() {
		o.notifications.Notify()
	}
}

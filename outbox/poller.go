package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// PollHandler takes what the poller reads. The [Dispatcher] is one.
type PollHandler interface {
	// Handle takes an event; false ends the poll cycle, and the event is read
	// again later.
	Handle(env Envelope) bool
	// AvailableCapacity is how many events Handle would take now. The poller
	// never reads more.
	AvailableCapacity() int
}

// pollFeedback is what the dispatcher adds to a PollHandler.
type pollFeedback interface {
	bind(p *Poller, batch int)
	beginRead() // rows read from now on may become stale
	endRead()   // all of them were handed over
	beginClaim(ctx context.Context) error
	endClaim()                  // what was claimed since was handed over
	roomFreed() <-chan struct{} // a token when wantRoom said false and there is room now
	wantRoom() bool             // whether there is room for a batch worth reading
	tellDepths()                // how full the queues are; nothing else does while workers hang
	takeoverRoom() int          // how many events may be taken over now from nodes that died
	takeOver(env Envelope) bool // Handle for one that may be such an event
}

// PollerConfig makes a [Poller] by hand; [New] does it for most users.
type PollerConfig struct {
	// DB, Store and Handler are required.
	DB      DB
	Store   Store
	Handler PollHandler
	// Options tune it.
	Options PollOptions
	// Claim leases what is read to its owner, as in [MultiNode]. Nil: rows are
	// only read.
	Claim *ClaimOptions
	// Metrics defaults to none, Logger to slog.Default(), Clock to the system's.
	Metrics Metrics
	Logger  *slog.Logger
	Clock   Clock
}

// Poller reads due events from the table and hands them to a [PollHandler]. An
// idle table is looked at once in an interval, and when an event becomes due; a
// backlog is read as fast as the handler takes it. It is safe for concurrent
// use.
type Poller struct {
	db      DB
	store   Store
	handler PollHandler
	feed    pollFeedback // nil when the handler is not a dispatcher
	opts    PollOptions
	claim   *ClaimOptions
	metrics Metrics
	log     *slog.Logger
	clock   Clock

	failing, unburied burst

	loop   loop
	agenda agenda
	busy   chan struct{}             // holds a token while a cycle runs
	looked atomic.Pointer[time.Time] // see LastPoll

	// The rest belongs to whoever holds the token.
	cursor     Cursor    // where the next batch of a backlog begins
	scanned    time.Time // when the present pass over the table began
	failures   int       // of the store, in a row
	takeoverAt time.Time // when to look again for events of nodes that died
}

// NewPoller makes a poller. It reports everything that is wrong with the config
// at once. Nothing is read before Start or Poll.
func NewPoller(cfg PollerConfig) (*Poller, error) {
	v := validator{what: "PollerConfig"}
	requireStore(&v, cfg.DB, cfg.Store)
	if isNil(cfg.Handler) {
		v.add("Handler", "is required; a *outbox.Dispatcher is one")
	}
	options := validator{what: "PollOptions"}
	cfg.Options.validate(&options)
	claim := validator{what: "ClaimOptions"}
	if cfg.Claim != nil {
		cfg.Claim.validate(&claim)
	}
	if err := errors.Join(v.err(), options.err(), claim.err()); err != nil {
		return nil, err
	}
	p := &Poller{
		db: cfg.DB, store: cfg.Store, handler: cfg.Handler, opts: cfg.Options.withDefaults(),
		metrics: metricsOr(cfg.Metrics), log: loggerOr(cfg.Logger), clock: clockOr(cfg.Clock),
		busy: make(chan struct{}, 1),
	}
	if cfg.Claim != nil {
		c := cfg.Claim.withDefaults()
		p.claim = &c
	}
	p.failing = burst{log: p.log, level: slog.LevelError, message: "outbox: polling failed, trying again"}
	p.unburied = burst{log: p.log, level: slog.LevelError, message: "outbox: undecodable events could not be marked dead, the next poll tries again"}
	p.agenda.init()
	p.loop.init(p.run)
	if feed, ok := cfg.Handler.(pollFeedback); ok {
		p.feed = feed
		feed.bind(p, p.opts.BatchSize)
	}
	return p, nil
}

// Start begins polling, at once. ctx bounds the start alone. Starting twice is
// harmless; after Close it is [ErrClosed].
func (p *Poller) Start(ctx context.Context) error { return p.loop.start(ctx) }

// Close stops polling and waits until a cycle under way has ended, or until ctx
// ends.
func (p *Poller) Close(ctx context.Context) error {
	err := p.loop.close(ctx)
	p.failing.flush()
	p.unburied.flush()
	if err != nil {
		return fmt.Errorf("outbox: closing the poller: %w", err)
	}
	return nil
}

// Wake makes the poller look now.
func (p *Poller) Wake() { p.agenda.wake() }

// DueAt tells the poller that an event becomes due at t.
func (p *Poller) DueAt(t time.Time) { p.agenda.dueAt(t) }

// LookAgain makes the poller look in 10 ms, 100 ms and 1 s, for events of a
// transaction whose end nobody tells.
func (p *Poller) LookAgain() { p.agenda.lookAgain(p.clock.Now()) }

// Poll runs one cycle now: it hands over what is due, as far as the handler has
// room, and returns how many events it read.
func (p *Poller) Poll(ctx context.Context) (int, error) {
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	p.takeoverAt = time.Time{}
	n, _, err := p.cycle(ctx)
	if err == nil {
		p.note()
	}
	return n, err
}

// LastPoll is when the poller last read the table without an error, or found its
// handler full; the zero time when it has not done so yet. An idle table is read
// once in an interval, so a time that is much older says that the poller does
// not get through.
func (p *Poller) LastPoll() time.Time {
	if t := p.looked.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// note takes down that the poller got through just now.
func (p *Poller) note() {
	now := p.clock.Now()
	p.looked.Store(&now)
}

// run is the poller's goroutine.
func (p *Poller) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var room <-chan struct{}
	if p.feed != nil {
		room = p.feed.roomFreed()
	}
	var idle time.Time // when to look at an idle table
	for {
		select {
		case <-timer.C:
		case <-p.agenda.woken:
		case <-room:
		case <-p.agenda.changed:
			now := p.clock.Now()
			timer.Reset(min(idle.Sub(now), p.agenda.next(now)))
			continue
		case <-ctx.Done():
			return
		}
		pause := p.runCycle(ctx)
		if ctx.Err() != nil {
			return
		}
		now := p.clock.Now()
		idle = now.Add(pause)
		timer.Reset(min(pause, p.agenda.next(now)))
	}
}

// runCycle runs a cycle and says how long to sleep if nothing happens.
func (p *Poller) runCycle(ctx context.Context) time.Duration {
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return 0
	}
	p.agenda.begin(p.clock.Now())
	_, idle, err := p.cycle(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return 0
		}
		p.failures++
		pause := min(p.opts.Interval, 50*time.Millisecond<<min(p.failures, 10))
		p.failing.add(1, logKeyDelay, pause, logKeyError, err.Error())
		return pause
	}
	p.failures = 0
	p.note()
	return idle
}

// cycle reads batch after batch until nothing more is due or the handler has no
// room, and says when to look again.
func (p *Poller) cycle(ctx context.Context) (read int, idle time.Duration, err error) {
	if p.feed != nil {
		p.feed.tellDepths()
	}
	takeovers := false // whether the last claim was one of those
	for {
		if err := ctx.Err(); err != nil { // closing: a claim does not see it
			return read, 0, err
		}
		if p.feed != nil && !p.feed.wantRoom() {
			return read, p.waitForRoom(), nil
		}
		room := p.handler.AvailableCapacity()
		if room <= 0 {
			return read, p.waitForRoom(), nil
		}
		limit := min(room, p.opts.BatchSize)
		few := p.takeoverRoom()
		if takeovers = few > 0 && !takeovers; takeovers {
			limit = min(limit, few)
		}
		n, taken, err := p.batch(ctx, limit, takeovers)
		read += n
		if err != nil {
			return read, 0, err
		}
		if !taken {
			return read, p.waitForRoom(), nil
		}
		if n < limit {
			break
		}
	}
	p.cursor = Cursor{}
	due, err := p.nextDue(ctx)
	if err != nil {
		return read, 0, err
	}
	if !due.IsZero() {
		p.agenda.note(due)
	}
	if p.opts.SkipRecent > 0 {
		// Rows that were left out for being recent are due soon.
		return read, min(p.opts.Interval, p.opts.SkipRecent), nil
	}
	return read, p.opts.Interval, nil
}

func (p *Poller) nextDue(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	due, err := p.store.NextDue(ctx, p.db, storedTime(p.clock.Now()))
	if err != nil {
		return time.Time{}, fmt.Errorf("outbox: asking when the next event is due: %w", err)
	}
	return due, nil
}

// waitForRoom is how long to sleep when the handler is full. A dispatcher says
// when it has room; any other handler has to be asked.
func (p *Poller) waitForRoom() time.Duration {
	if p.feed != nil {
		return p.opts.Interval
	}
	return min(p.opts.Interval, 50*time.Millisecond)
}

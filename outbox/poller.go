package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/agenda"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/loop"
	"github.com/outboxkit/outbox-go/outbox/internal/pass"
	"github.com/outboxkit/outbox-go/outbox/internal/patience"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// poller reads due events from the table and hands them to the dispatcher. An idle table is looked
// at once in an interval, and when an event becomes due; a backlog is read as fast as the
// dispatcher takes the events. A poller is safe for concurrent use.
type poller struct {
	db         DB
	store      Store
	dispatcher *dispatcher
	opts       PollOptions
	inOrder    bool           // as in [Ordered]
	runs       *runPolling    // nil but in [OrderedByKey]
	tenants    *tenantPolling // nil but with [ClaimOptions].TenantsInTurn
	metrics    Metrics
	log        *slog.Logger
	clock      Clock

	failing, unburied logburst.Burst
	undecodable       logburst.ByCause

	loop   *loop.Loop
	agenda *agenda.Agenda
	busy   chan struct{}             // holds a token while a cycle runs
	looked atomic.Pointer[time.Time] // see lastPoll
	polled chan struct{}             // closed when looked is first set

	// died is when a process that held the table was found dead: the events that were due by then
	// may have been in its hands. Zero: no process was found dead, or these events are done.
	died      atomic.Pointer[time.Time]
	suspected atomic.Int64 // rows that were claimed for this reason

	// The rest belongs to whoever holds the token.
	leavingOut
	pass       pass.Pass[Cursor]
	term       int64     // of the hold, when the present read began
	read       time.Time // the time as of which the last batch was read
	failures   int       // of the store, in a row
	patience   patience.Patience
	fromStart  patience.Patience // for reads from the start of the table
	takeoverAt time.Time         // when to look again for expired leases
	takenOver  int               // events whose leases expired, not yet logged
}

// newPoller makes the poller of an outbox, which hands events to d.
func newPoller(b *builder, d *dispatcher) *poller {
	p := &poller{
		polled: make(chan struct{}), dispatcher: d, inOrder: b.inOrder,
		db: b.DB, store: b.Store, opts: b.poll.withDefaults(),
		metrics: b.Metrics, log: b.Logger, clock: b.Clock,
		agenda: agenda.New(), busy: make(chan struct{}, 1),
	}
	p.failing = logburst.Burst{Log: p.log, Level: slog.LevelError, Message: "outbox: polling failed, trying again", Ended: "outbox: polling works again"}
	p.undecodable = logburst.ByCause{Log: p.log, Level: slog.LevelError, Message: "outbox: event cannot be decoded, it is dead", Single: causeLines}
	p.unburied = logburst.Burst{Log: p.log, Level: slog.LevelError, Message: "outbox: undecodable events could not be marked dead, the next poll tries again"}
	p.loop = loop.New(p.run, ErrClosed)
	if b.claim != nil && b.claim.TenantsInTurn {
		p.tenants = &tenantPolling{reader: b.Store.(TenantReader)}
	}
	if b.byKey != nil {
		p.runs = &runPolling{
			reader: b.Store.(RunReader), length: b.byKey.RunLength, skipDead: b.byKey.OnDead == SkipDead,
		}
	}
	d.poller = p
	return p
}

// Start begins polling, at once. ctx bounds only the start. Starting twice is harmless; after
// Close, Start returns [ErrClosed].
func (p *poller) Start(ctx context.Context) error { return p.loop.Start(ctx) }

// Close stops polling and waits until a cycle under way has ended, or until ctx
// ends.
func (p *poller) Close(ctx context.Context) error {
	err := p.loop.Close(ctx)
	if err == nil {
		p.logTakeovers(true)
	}
	p.failing.Flush()
	p.unburied.Flush()
	p.undecodable.Flush()
	if err != nil {
		return fmt.Errorf("outbox: closing the poller: %w", err)
	}
	return nil
}

// begin is called when this process begins to hold the table.
func (p *poller) begin(died bool) {
	if died {
		now := storedTime(p.clock.Now())
		p.died.Store(&now)
		p.suspected.Store(0)
	}
}

// delivers reports whether this process delivers the events that its poller would read; a nil
// poller delivers nothing.
func (p *poller) delivers() bool {
	return p != nil && p.dispatcher.holds()
}

// Wake makes the poller look now.
func (p *poller) Wake() { p.agenda.Wake() }

// DueAt makes the poller look at t, when an event becomes due.
func (p *poller) DueAt(t time.Time) { p.agenda.DueAt(t) }

// LookAgain makes the poller look in 10 ms, 100 ms and 1 s, for events of a
// transaction that the outbox does not see end.
func (p *poller) LookAgain() { p.agenda.LookAgain(p.clock.Now()) }

// lastPoll is when the poller last read the table without an error, or found the dispatcher full;
// the zero time when neither has happened yet. An idle table is read once in an interval, so a time
// that is much older says that the poller does not get through.
func (p *poller) lastPoll() time.Time {
	if t := p.looked.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// note records that the poller got through just now.
func (p *poller) note() {
	now := p.clock.Now()
	if p.looked.Swap(&now) == nil {
		close(p.polled)
	}
}

// run is the poller's goroutine.
func (p *poller) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var idle time.Time // when to look at an idle table
	for {
		select {
		case <-timer.C:
		case <-p.agenda.Woken:
		case <-p.dispatcher.room:
		case <-p.agenda.Changed:
			now := p.clock.Now()
			timer.Reset(min(idle.Sub(now), p.agenda.Next(now)))
			continue
		case <-ctx.Done():
			return
		}
		pause, failed := p.runCycle(ctx)
		if failed { // nothing wakes the poller earlier: a claim that fails wakes the poller itself
			wait.Sleep(ctx, pause)
			pause = 0
		}
		if ctx.Err() != nil {
			return
		}
		now := p.clock.Now()
		idle = now.Add(pause)
		timer.Reset(min(pause, p.agenda.Next(now)))
	}
}

// runCycle runs a cycle and says how long to sleep if nothing happens, and after a failure
// whatever happens.
func (p *poller) runCycle(ctx context.Context) (pause time.Duration, failed bool) {
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return 0, false
	}
	p.agenda.Begin(p.clock.Now())
	_, idle, err := p.cycle(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return 0, false
		}
		p.failures++
		pause = min(p.opts.Interval, pollMaxPause, 50*time.Millisecond<<min(p.failures, 10))
		if p.failures == 1 && sqlerr.IsDeadlock(err) {
			p.log.Debug("outbox: polling met a deadlock, trying again", logKeyError, err.Error())
		} else {
			p.failing.Add(1, logKeyDelay, durationText(pause), logKeyError, err.Error())
		}
		return pause, true
	}
	p.failures = 0
	p.failing.End()
	p.note()
	return idle, false
}

// pollMaxPause is the most time between tries after failures: the poller notices the end of an
// outage this soon.
const pollMaxPause = time.Second

// cycle reads batch after batch until nothing more is due or the dispatcher has no room, and says
// when to look again. After a pass of several reads, cycle begins another pass if rows may have
// come behind the place of the pass.
func (p *poller) cycle(ctx context.Context) (read int, idle time.Duration, err error) {
	p.dispatcher.tellDepths()
	if p.runs != nil {
		return p.cycleByKey(ctx)
	}
	idle = p.idle()
	last, none := plain, false // none: a batch of suspects was empty
	claims := p.dispatcher.claims
	p.pass.BeginCycle()
	var left map[*lane]int64
	for {
		if err := ctx.Err(); err != nil { // closing: a claim does not see this
			return read, 0, err
		}
		if !p.dispatcher.holds() { // another process delivers
			return read, p.opts.Interval, nil
		}
		if err := p.readPauses(ctx); err != nil {
			return read, 0, err
		}
		room := p.room()
		if room <= 0 {
			return read, p.opts.Interval, nil
		}
		left = p.leaveOut()
		q, ok := p.next(min(room, p.opts.BatchSize, p.laneRoom()), last)
		if !ok {
			return read, idle, nil
		}
		n, taken, err := p.batch(ctx, q)
		read += n
		if err != nil {
			return read, 0, err
		}
		if !taken {
			return read, p.opts.Interval, nil
		}
		last, none = q.kind, none || q.kind == suspects && n == 0
		if n == q.limit || q.kind == suspects || p.tenants.more() {
			continue
		}
		if p.pass.MayHaveRowsBehind(claims) {
			p.endPass(left)
			continue
		}
		if q.kind == plain && !none && p.takeoversWait() && p.takeoverRoom() > 0 {
			continue
		}
		break
	}
	p.logTakeovers(false)
	p.endPass(left)
	return read, idle, p.noteNextDue(ctx)
}

// noteNextDue asks for the first event that becomes due after the last batch was read: events that
// became due since then were neither read nor noted.
func (p *poller) noteNextDue(ctx context.Context) error {
	var due time.Time
	err := p.statement(ctx, func(ctx context.Context) (err error) {
		due, err = p.store.NextDue(ctx, p.db, p.read)
		return err
	})
	if err != nil {
		return fmt.Errorf("outbox: asking when the next event is due: %w", err)
	}
	if !due.IsZero() {
		p.agenda.Note(due)
	}
	return nil
}

// statement runs a statement with the poller's patience.
func (p *poller) statement(ctx context.Context, run func(ctx context.Context) error) error {
	return p.patience.Statement(ctx, run)
}

// idle is how long to sleep when nothing is due.
func (p *poller) idle() time.Duration {
	if p.opts.SkipRecent > 0 {
		return min(p.opts.Interval, p.opts.SkipRecent) // rows that are left out for being recent are due soon
	}
	return p.opts.Interval
}

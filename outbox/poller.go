package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	inOrder    bool // as in [Ordered]
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
	written   atomic.Bool  // in [OrderedByKey], this process committed events that are due

	// The rest belongs to whoever holds the token.
	free, takeovers source
	more            bool // there may be more free events to read in this cycle
	leavingOut
	pass       pass.Pass[Cursor]
	term       int64     // of the hold, when the present read began
	asOf       time.Time // the time as of which the last batch was read
	failures   int       // of the store, in a row
	patience   patience.Patience
	fromStart  patience.Patience // for reads from the start of the table
	takeoverAt time.Time         // when to look again for expired leases
	takenOver  int               // events whose leases expired, not yet logged

	locked      bool      // this cycle left postponed rows that it could not claim
	lockedSince time.Time // the cycles since then did; zero: the last cycle did not
}

// leavingOut is the state of the poller for passes that leave out kinds of events.
type leavingOut struct {
	except      []EventKind // kinds that the last batch left out, or refused
	laneBatches int         // since a lane that had no room has some
}

// source is a way in which the poller finds events. Each mode has a source of free events, and a
// source of takeovers: events that a dead process may have had in hand.
type source interface {
	// begin is called at the beginning of a cycle.
	begin()
	// room is how many of limit events the source may read now; zero or less: no event.
	room(limit int) int
	// read finds up to limit events.
	read(ctx context.Context, limit int) (found, error)
}

// found is the result of a read of a source.
type found struct {
	ds   []delivery
	runs []int // how many of ds each run has, one run after the other; nil: each event is a run
	// undecodable rows are to be marked DEAD, and the leases of back to be given back.
	undecodable []Undecodable
	lease       string // of the undecodable rows
	back        []Lease
	right       *right // to the range that is read; nil: none
	all         bool   // no free row was left
	stopped     bool   // the next row is paused, or locked, and holds up the rows behind it
}

// check reports that the database lacks a part that the sources need.
func (p *poller) check(ctx context.Context) error {
	if free, needs := p.free.(interface{ check(context.Context) error }); needs {
		return free.check(ctx)
	}
	return nil
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
	p.dispatcher.pauses.gained()
	if died {
		now := p.now()
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

// startOver makes the poller look now, from the start of the table: rows became free.
func (p *poller) startOver() {
	p.pass.Restart()
	p.Wake()
}

// wroteRuns makes the poller read events that this process committed.
func (p *poller) wroteRuns() {
	p.written.Store(true)
	p.Wake()
}

// doubtPauses says that another process may have paused or resumed something.
func (p *poller) doubtPauses() { p.dispatcher.pauses.stale.Store(true) }

// DueAt makes the poller look at t, when an event becomes due. In a Drain such an event is for
// another Drain.
func (p *poller) DueAt(t time.Time) {
	if p.dispatcher.drain == nil {
		p.agenda.DueAt(t)
	}
}

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
	idle, err := p.cycle(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return 0, false
		}
		p.failures++
		pause = min(pollMaxPause, 50*time.Millisecond<<min(p.failures, 10))
		if !errors.As(err, &notLeased{}) {
			pause = min(pause, p.opts.Interval)
		}
		if p.failures == 1 && sqlerr.IsDeadlock(err) {
			p.log.Debug("outbox: polling met a deadlock; trying again", logKeyError, err.Error())
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

// notLeased is the error of a read of rows that could not be leased. After it, the poller pauses even if the
// interval is shorter: a process that took the same range again at once would keep it from the others.
type notLeased struct{ error }

func (e notLeased) Unwrap() error { return e.error }

// pollMaxPause is the most time between tries after failures: the poller notices the end of an
// outage this soon.
const pollMaxPause = time.Second

// takeoverTurn: every takeoverTurn-th read of a cycle is for takeovers, while there are free events.
const takeoverTurn = 4

// cycle reads batch after batch until nothing more is due or the dispatcher has no room, and says
// when to look again.
func (p *poller) cycle(ctx context.Context) (idle time.Duration, err error) {
	p.dispatcher.tellDepths()
	written := p.written.Swap(false)
	p.more = true
	if !p.locked {
		p.lockedSince = time.Time{}
	}
	p.locked = false
	p.free.begin()
	p.takeovers.begin()
	for step := 0; ; step++ {
		if err := ctx.Err(); err != nil { // closing: a claim does not see this
			return 0, err
		}
		if !p.dispatcher.holds() { // another process delivers
			return p.opts.Interval, nil
		}
		if err := p.readPauses(ctx); err != nil {
			return 0, err
		}
		room := p.room()
		if room <= 0 {
			if written {
				p.dispatcher.notifications.Notify()
			}
			return p.opts.Interval, nil
		}
		left := p.leaveOut()
		s, limit := p.turn(step, min(room, p.opts.BatchSize, p.laneRoom()))
		if s == nil {
			if step == 0 {
				p.asOf = p.now() // what is due by now waits for room, which wakes the poller
			}
			break
		}
		switch taken, err := p.batch(ctx, s, limit, left); {
		case err != nil:
			return 0, err
		case !taken:
			return p.opts.Interval, nil
		}
	}
	p.logTakeovers(false)
	return p.idle(), p.noteNextDue(ctx)
}

// readPauses stores and reads the pauses if that is due, and notes when the first pause ends. The
// poller's patience stays as it is, because reading the pauses is fast when claims are slow. A pause
// that cannot be stored does not stop the poller.
func (p *poller) readPauses(ctx context.Context) error {
	pauses := p.dispatcher.pauses
	if pauses.isDue() {
		storing, cancel := p.patience.Context(ctx)
		stored, err := pauses.storeAsked(storing)
		cancel()
		if err != nil && ctx.Err() == nil {
			pauses.unstored.Add(1, logKeyError, err.Error())
		}
		if stored > 0 {
			p.dispatcher.notifications.Notify()
			p.DueAt(p.clock.Now()) // events of a key whose pause was lifted
		}
		reading, cancel := p.patience.Context(ctx)
		defer cancel()
		if err := pauses.read(reading); err != nil {
			return err
		}
	}
	if next := pauses.next(); !next.IsZero() {
		p.agenda.Note(next)
	}
	return nil
}

// room is how many events the dispatcher takes now; zero while there is not enough
// room for a batch worth reading.
func (p *poller) room() int {
	if p.dispatcher.queues.Cold.IsFull() {
		return 0
	}
	return p.dispatcher.drain.room(p.dispatcher.coldRoom())
}

// leaveOut decides which kinds of events the next batch leaves out: kinds that are
// paused, and kinds whose lanes are full. When a kind is no longer left out, the pass
// over the table starts over. left is how many events the other lanes left in the
// table by now.
func (p *poller) leaveOut() (left map[*lane]int64) {
	d := p.dispatcher
	except := d.except()
	fewer := slices.ContainsFunc(p.except, func(kind EventKind) bool { return !slices.Contains(except, kind) })
	if fewer {
		p.laneBatches = 0
	}
	if p.pass.RestartAsked() || fewer {
		p.pass.StartOver()
	}
	p.except = except
	for kind, l := range d.lanes() {
		if n := l.Left(); n > 0 && !slices.Contains(except, kind) {
			if left == nil {
				left = map[*lane]int64{}
			}
			left[l] = n
		}
	}
	return left
}

// laneRoom bounds the next batch while it may have events for a lane with little room:
// events that the lane does not take have to be given back. Each batch may be twice as
// large as the batch before, because the events may be of other kinds.
func (p *poller) laneRoom() int {
	room := p.dispatcher.openRoom()
	if room == 0 {
		return MaxBatch
	}
	room <<= min(p.laneBatches, 16)
	p.laneBatches++
	return room
}

// turn chooses the source of the next read, and how many events it may read; nil when there is
// nothing to read now.
func (p *poller) turn(step, limit int) (s source, n int) {
	free := 0
	if p.more {
		free = p.free.room(limit)
	}
	if free <= 0 || step%takeoverTurn == 0 {
		if n = p.takeovers.room(limit); n > 0 {
			return p.takeovers, n
		}
	}
	if free <= 0 {
		return nil, 0
	}
	return p.free, free
}

// batch reads from a source and hands over the events; taken is false when the dispatcher has no
// room for an event. left is how many events the lanes left in the table before.
func (p *poller) batch(ctx context.Context, s source, limit int, left map[*lane]int64) (taken bool, err error) {
	p.asOf = p.now()
	p.beginTerm()
	p.dispatcher.track.beginRead(p.asOf)
	defer p.dispatcher.track.endRead()
	f, err := s.read(ctx, limit)
	defer p.dispatcher.track.readEnded(f.right)
	if err != nil {
		return false, err
	}
	p.note()                    // a backlog makes a long cycle
	if f.len() > 0 || !p.more { // an empty read for takeovers says nothing of the free events
		p.observe(f)
	}
	unburied := p.bury(ctx, f.undecodable, f.lease)
	taken = p.handOver(f)
	if unburied != nil && len(f.undecodable) == limit {
		return false, unburied // the next batch may begin at the same place, with the same rows
	}
	if taken && f.all {
		p.endPass(left)
	}
	return taken, nil
}

// endPass ends a pass over the table: the lanes have the events that they had left there
// before the last batch.
func (p *poller) endPass(left map[*lane]int64) {
	p.pass.End()
	for l, n := range left {
		l.Filled(n)
	}
}

// beginTerm starts over under a new hold: another process may have delivered meanwhile, and the
// events that are still queued go back to their place in the order.
func (p *poller) beginTerm() {
	term := p.dispatcher.term()
	if p.term != 0 && p.term != term {
		p.pass.StartOver()
		p.dispatcher.giveBack()
	}
	p.term = term
}

// handOver gives the dispatcher the events, run after run, and gives back the leases of the events
// that the dispatcher does not take. handOver returns false when the dispatcher has no room.
func (p *poller) handOver(f found) (taken bool) {
	back := f.back
	defer func() { p.dispatcher.leases.releaser.Release(back) }()
	taken = true
	for i, runs := 0, f.runs; i < len(f.ds); {
		n := 1
		if runs != nil {
			n, runs = runs[0], runs[1:]
		}
		run := f.ds[i : i+n]
		i += n
		takeover, n := run[0].takeover, 0
		if taken {
			if n, taken = p.takeIn(run); n == 0 && taken {
				p.passOver(kindOf(run[0].env))
			}
		}
		if takeover {
			p.takenOver += n
		}
		back = append(back, leasesOf(run[n:])...)
	}
	taken = taken && !f.stopped
	if !taken {
		p.pass.ReadAgain() // the refused events come first
	}
	return taken
}

// takeIn gives the dispatcher a run, up to the last event for which a Drain has room.
func (p *poller) takeIn(run []delivery) (taken int, ok bool) {
	room := p.dispatcher.drain.room(len(run))
	if room <= 0 {
		return 0, false
	}
	return p.dispatcher.takeIn(run[:room])
}

// passOver notes that the dispatcher left an event out for its kind.
func (p *poller) passOver(kind EventKind) {
	if !slices.Contains(p.except, kind) {
		p.except = append(p.except, kind)
	}
}

func (p *poller) observe(f found) {
	p.metrics.BatchRead(f.len())
	var lag time.Duration
	if len(f.ds) > 0 {
		oldest := f.ds[0].env.AvailableAt
		for i := range f.ds {
			if t := f.ds[i].env.AvailableAt; t.Before(oldest) {
				oldest = t
			}
		}
		lag = max(p.clock.Now().Sub(oldest), 0)
	}
	p.metrics.OldestLag(lag)
}

// noteNextDue asks for the first event that becomes due after the last batch was read: events that
// became due since then were neither read nor noted.
func (p *poller) noteNextDue(ctx context.Context) error {
	if p.dispatcher.drain != nil {
		return nil
	}
	var due time.Time
	err := p.statement(ctx, func(ctx context.Context) (err error) {
		due, err = p.store.NextDue(ctx, p.db, p.asOf)
		return err
	})
	if err != nil {
		return err
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

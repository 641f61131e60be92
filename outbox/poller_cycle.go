package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// run is the poller's goroutine.
func (p *Poller) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var room <-chan struct{}
	if p.dispatcher != nil {
		room = p.dispatcher.room
	}
	var idle time.Time // when to look at an idle table
	for {
		select {
		case <-timer.C:
		case <-p.agenda.Woken:
		case <-room:
		case <-p.agenda.Changed:
			now := p.clock.Now()
			timer.Reset(min(idle.Sub(now), p.agenda.Next(now)))
			continue
		case <-ctx.Done():
			return
		}
		pause, failed := p.runCycle(ctx)
		if failed { // nothing wakes it earlier: a claim that fails wakes the poller itself
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
func (p *Poller) runCycle(ctx context.Context) (pause time.Duration, failed bool) {
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

// pollMaxPause is the most time between tries after failures: an outage that ends
// is found out so soon.
const pollMaxPause = time.Second

// cycle reads batch after batch until nothing more is due or the handler has no
// room, and says when to look again. After a pass that was not one read it begins another
// one if rows may have come behind its place.
func (p *Poller) cycle(ctx context.Context) (read int, idle time.Duration, err error) {
	if p.dispatcher != nil {
		p.dispatcher.tellDepths()
	}
	if p.runs != nil {
		return p.cycleByKey(ctx)
	}
	idle = p.idle()
	last, none := plain, false // none: a batch of suspects was empty
	claims := p.dispatcher != nil && p.dispatcher.claims
	// begun: an earlier cycle began the pass, so what this one is for may have come behind its
	// place. Only a dispatcher drops what it has in hand already, which a poll finds again.
	begun := p.dispatcher != nil && !p.cursor.IsZero()
	var left map[*lane]int64
	for {
		if err := ctx.Err(); err != nil { // closing: a claim does not see it
			return read, 0, err
		}
		if p.dispatcher != nil && !p.dispatcher.holds() { // another process delivers
			return read, p.opts.Interval, nil
		}
		if err := p.readPauses(ctx); err != nil {
			return read, 0, err
		}
		room := p.room()
		if room <= 0 {
			return read, p.waitForRoom(), nil
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
			return read, p.waitForRoom(), nil
		}
		last, none = q.kind, none || q.kind == suspects && n == 0
		if n == q.limit || q.kind == suspects || p.tenants.more() {
			continue
		}
		if p.restart && (claims || begun) {
			p.endPass(left)
			begun = false
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

// noteNextDue asks for the first event that becomes due after the last batch was
// read: what became due since then was neither read nor noted.
func (p *Poller) noteNextDue(ctx context.Context) error {
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

// statement runs one statement with the poller's patience.
func (p *Poller) statement(ctx context.Context, run func(ctx context.Context) error) error {
	return p.patience.Statement(ctx, run)
}

// idle is how long to sleep when nothing is due.
func (p *Poller) idle() time.Duration {
	if p.opts.SkipRecent > 0 {
		return min(p.opts.Interval, p.opts.SkipRecent) // rows that are left out for being recent are due soon
	}
	return p.opts.Interval
}

// waitForRoom is how long to sleep when the handler is full. A dispatcher says
// when it has room; any other handler has to be asked.
func (p *Poller) waitForRoom() time.Duration {
	if p.dispatcher != nil {
		return p.opts.Interval
	}
	return min(p.opts.Interval, 50*time.Millisecond)
}

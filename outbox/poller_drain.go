package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const (
	drainLook  = 5 * time.Millisecond // between two looks whether everything in hand is stored
	drainTries = 4                    // cycles that fail in a row until a Drain fails
)

// runDrain is the poller's goroutine in a Drain.
func (p *poller) runDrain(ctx context.Context) {
	d := p.dispatcher.drain
	defer close(d.ended)
	d.more, d.err = p.drainTable(ctx, d)
	if s, ends := p.takeovers.(interface{ end(context.Context) error }); ends {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rangePatience)
		defer cancel()
		d.err = errors.Join(d.err, s.end(ctx))
	}
}

// drainTable runs cycles until a cycle that begins with nothing in hand, at the start of the table,
// takes nothing: then no event that is due can be delivered now. more says that events may be left
// that the next Drain can deliver.
func (p *poller) drainTable(ctx context.Context, d *drain) (more bool, err error) {
	for look, failures := true, 0; ctx.Err() == nil; look = p.awaitLook(ctx) {
		idle := p.dispatcher.isIdle()
		full := d.room(1) <= 0
		switch {
		case idle && full:
			return true, nil
		case full, (!idle || p.dispatcher.awaitsShare()) && !look:
			continue
		case idle:
			p.pass.StartOver()
		}
		taken, shareless := d.taken.Load(), p.dispatcher.shareless()
		p.agenda.Begin(p.clock.Now())
		_, err := p.cycle(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if failures++; failures == drainTries {
				return true, err
			}
			if !sqlerr.IsDeadlock(err) {
				wait.Sleep(ctx, 50*time.Millisecond<<failures)
			}
			p.Wake()
		case idle && d.taken.Load() == taken && (haveLeft(shareless) || p.dispatcher.awaitsShare()):
			// The share may have come after the cycle left the events.
		case idle && d.taken.Load() == taken:
			return !p.dispatcher.holds() && !p.dispatcher.waits(), nil
		default:
			failures = 0
		}
	}
	return true, nil
}

// awaitLook waits for a moment, or until there is something to read; look says which.
func (p *poller) awaitLook(ctx context.Context) (look bool) {
	timer := time.NewTimer(drainLook)
	defer timer.Stop()
	select {
	case <-p.agenda.Woken:
		return true
	case <-p.dispatcher.room:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.agenda.Next(p.clock.Now()) <= 0
}

// body is the poller's goroutine.
func (p *poller) body() func(ctx context.Context) {
	if p.dispatcher.drain != nil {
		return p.runDrain
	}
	return p.run
}

// now is the time by which the poller looks for events that are due.
func (p *poller) now() time.Time {
	if d := p.dispatcher.drain; d != nil {
		return d.due
	}
	return storedTime(p.clock.Now())
}

package outbox

import (
	"context"
	"fmt"
	"time"
)

// What the poller does with one batch.

// batch reads one batch and hands it over; taken is false when the handler
// refused an event. With takeovers, rows are claimed whose leases expired, too.
func (p *Poller) batch(ctx context.Context, limit int, takeovers bool) (n int, taken bool, err error) {
	switch {
	case p.feed == nil:
	case p.claim == nil:
		p.feed.beginRead()
		defer p.feed.endRead()
	default: // a claimed row is as it stands, unless its lease ends meanwhile
		if err := p.feed.beginClaim(ctx); err != nil {
			return 0, false, err
		}
		defer p.feed.endClaim()
	}
	b, err := p.read(ctx, limit, takeovers)
	if err != nil {
		return 0, false, err
	}
	p.note() // a backlog makes a long cycle
	p.observe(b)
	p.bury(ctx, b.Undecodable)
	handle := p.handler.Handle
	if takeovers {
		handle = p.takeOver
		p.takeoverAt = time.Now().Add(p.opts.Interval) // unless there are some
	}
	for i := range b.Envelopes {
		if !handle(b.Envelopes[i]) {
			p.giveBack(b.Envelopes[i:])
			p.cursor = Cursor{} // the refused events come first again
			return b.Len(), false, nil
		}
	}
	return b.Len(), true, nil
}

// read polls or claims. A poll of a backlog goes on where the last one ended:
// rows before that place are in flight. It starts over from time to time, for a
// row with an early time may have been committed late.
func (p *Poller) read(ctx context.Context, limit int, takeovers bool) (Batch, error) {
	now := p.clock.Now()
	var createdBefore time.Time
	if p.opts.SkipRecent > 0 {
		createdBefore = storedTime(now.Add(-p.opts.SkipRecent))
	}
	if p.claim != nil {
		return p.readClaimed(ctx, storedTime(now), createdBefore, limit, takeovers)
	}
	if p.cursor.IsZero() || now.Sub(p.scanned) > max(p.opts.Interval, time.Second) {
		p.cursor, p.scanned = Cursor{}, now
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	b, err := p.store.Poll(ctx, p.db, PollQuery{Now: storedTime(now), CreatedBefore: createdBefore, After: p.cursor, Limit: limit})
	if err != nil {
		return Batch{}, fmt.Errorf("outbox: polling due events: %w", err)
	}
	p.cursor = b.Next
	return b, nil
}

func (p *Poller) observe(b Batch) {
	p.metrics.BatchRead(b.Len())
	var lag time.Duration
	if len(b.Envelopes) > 0 {
		oldest := b.Envelopes[0].AvailableAt
		for i := range b.Envelopes {
			if t := b.Envelopes[i].AvailableAt; t.Before(oldest) {
				oldest = t
			}
		}
		lag = max(p.clock.Now().Sub(oldest), 0)
	}
	p.metrics.OldestLag(lag)
}

// bury marks rows DEAD that cannot be delivered, so that the rest can go on.
func (p *Poller) bury(ctx context.Context, rows []Undecodable) {
	if len(rows) == 0 {
		return
	}
	marks := make([]Mark, len(rows))
	for i, row := range rows {
		marks[i] = Mark{EventID: row.EventID, Error: errorText(row.Err.Error())}
	}
	n, err := p.markDead(ctx, marks)
	lost := err != nil && ctx.Err() == nil
	if lost { // ask again: should it have been done, no poll would bring the rows anew
		n, err = p.markDead(ctx, marks)
	}
	if err != nil || n == 0 && !lost { // without an error another node was faster, and tells of it
		return
	}
	for _, row := range rows {
		p.metrics.Died(EventKind{})
		p.log.Error("outbox: event cannot be decoded, it is dead", logKeyEventID, row.EventID, logKeyError, errorText(row.Err.Error()))
	}
}

func (p *Poller) markDead(ctx context.Context, marks []Mark) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	n, err := markOwned(ctx, p.store, p.db, OutcomeDead, p.owner(), marks)
	if err != nil {
		p.unburied.add(len(marks), logKeyError, err.Error())
	}
	return n, err
}

package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/patience"
)

// dueRows reads due rows in the order in which they became due, in passes over the table, while this
// process holds the table.
type dueRows struct{ p *poller }

func (s *dueRows) begin() { s.p.pass.BeginCycle() }

// room is zero in [Ordered] while there are suspects, which come before the other events.
func (s *dueRows) room(limit int) int {
	if s.p.inOrder && s.p.died.Load() != nil {
		return 0
	}
	return limit
}

func (s *dueRows) read(ctx context.Context, limit int) (f found, err error) {
	p, place := s.p, s.p.place()
	f, b, err := p.poll(ctx, place, limit)
	if err != nil {
		return f, err
	}
	f.all = b.Len() < limit
	p.pass.Read(place, b.Next, f.all)
	p.more = !f.all || p.pass.MayHaveRowsBehind()
	return f, nil
}

// poll reads rows, and leases the postponed rows.
func (p *poller) poll(ctx context.Context, place Cursor, limit int) (f found, b Batch, err error) {
	b, err = p.readRowsFreed(ctx, func() (Batch, error) {
		return p.readRows(ctx, p.patienceFrom(place), PollQuery{
			Now: p.asOf, CreatedBefore: p.createdBefore(), After: place, Limit: limit, Except: p.except, LeaseDuration: p.leaseDuration(),
		})
	})
	if err != nil {
		return f, b, err
	}
	f = p.found(b, "")
	f.undecodable = slices.DeleteFunc(b.Undecodable, func(row Undecodable) bool { // as they were written
		return p.dispatcher.track.holds(row.EventID) // the delivery says how the event ends
	})
	err = p.claimPostponed(ctx, &f)
	if err == nil && !f.stopped {
		var expired []delivery
		expired, err = p.takeExpired(ctx, eventsOf(b.Expired))
		f.ds = append(f.ds, expired...)
	}
	if err != nil {
		p.dispatcher.leases.releaser.Release(leasesOf(f.ds))
	}
	return f, b, err
}

// readRows runs a poll.
func (p *poller) readRows(ctx context.Context, patience *patience.Patience, q PollQuery) (b Batch, err error) {
	err = patience.Statement(ctx, func(ctx context.Context) (err error) {
		b, err = p.store.Poll(ctx, p.db, q)
		return err
	})
	return b, err
}

// place is where the next batch begins: in a backlog, where the last batch ended, because rows
// before that place are in flight. The place starts over from time to time, because a row with an
// early time may have been committed late, or released.
func (p *poller) place() Cursor {
	if now := p.clock.Now(); !p.pass.GoesOn(now, max(p.opts.Interval, time.Second)) {
		p.pass.Begin(now, p.passStart(now))
	}
	place := p.pass.Next()
	if died := p.died.Load(); died != nil && place.AvailableAt.Before(*died) {
		return Cursor{AvailableAt: *died} // the events that were due by then are suspects
	}
	return place
}

// passStart is where a pass over the table begins. A pass that leaves out kinds reads
// past all of their rows. While another transaction holds an old snapshot, any pass
// reads past the rows that were delivered since then. So after a pass over all rows,
// passes begin at the recent rows for as long as sweepPause.
func (p *poller) passStart(now time.Time) Cursor {
	cheap := len(p.except) == 0 && p.fromStart.Last() < slowRead
	if cheap || now.Sub(p.pass.Swept()) > max(p.sweepPause(), time.Second) {
		return Cursor{}
	}
	return Cursor{AvailableAt: storedTime(p.pass.Swept().Add(-p.opts.SkipRecent - lateCommit))}
}

// sweepPause is the time between two reads from the start of the table: the interval. While
// kinds are left out, sweepPause grows with their rows, so that the reads take a hundredth of
// the time.
func (p *poller) sweepPause() time.Duration {
	if len(p.except) == 0 {
		return p.opts.Interval
	}
	return max(p.opts.Interval, min(100*p.fromStart.Last(), maxSweepPause))
}

// maxSweepPause is how long an event that only a read from the start of the table finds
// may wait at most, unless the interval is longer.
const maxSweepPause = time.Minute

// lateCommit is how long a transaction may take, so that a pass which begins at recent
// rows finds its events. Events of longer transactions wait for a pass over all rows.
const lateCommit = 10 * time.Second

// slowRead is the time from which a read from the start of the table counts as slow, and
// is not repeated within sweepPause.
const slowRead = 100 * time.Millisecond

// patienceFrom is the patience for a read from a place. Reads from the start have a
// separate patience: they may take much longer than other reads, which would lower the
// limit each time.
func (p *poller) patienceFrom(place Cursor) *patience.Patience {
	if place.IsZero() {
		return &p.fromStart
	}
	return &p.patience
}

// createdBefore is the bound of [PollOptions].SkipRecent.
func (p *poller) createdBefore() time.Time {
	if p.opts.SkipRecent <= 0 {
		return time.Time{}
	}
	return storedTime(p.asOf.Add(-p.opts.SkipRecent))
}

// suspects leases, in a mode without leases, some of the rows that were due when the process that
// held the table died, up to as many as a process can have in hand. The lease is a note for the
// next process: an event that the next process finds leased had a delivery by this process. In
// order, that delivery counts at once; else the event waits until its lease expires, and the other
// events come first.
type suspects struct {
	p     *poller
	none  bool       // the last read of this cycle found no suspect
	freed *time.Time // the process that died then has no lease of a postponed row
}

func (s *suspects) begin() { s.none = false }

func (s *suspects) room(limit int) int {
	if s.p.died.Load() == nil || s.none {
		return 0
	}
	return min(limit, s.p.takeoverRoom())
}

func (s *suspects) read(ctx context.Context, limit int) (f found, err error) {
	p, died := s.p, s.p.died.Load()
	if s.freed != died {
		if err := p.freeAllPostponed(ctx, *died); err != nil {
			return f, err
		}
		s.freed = died
	}
	q := PollQuery{Now: *died, CreatedBefore: p.createdBefore(), Limit: limit, LeaseDuration: p.leaseDuration(), Except: p.except}
	var b Batch
	var ids []string
	for len(ids) == 0 { // events that this process has in hand are passed over
		b, err = p.readRowsFreed(ctx, func() (Batch, error) { return p.readRows(ctx, &p.patience, q) })
		if err != nil {
			return f, err
		}
		ids = eventIDs(b.Envelopes)
		for _, row := range b.Undecodable {
			ids = append(ids, row.EventID)
		}
		if p.inOrder {
			ids = append(ids, eventsOf(b.Expired)...)
		}
		ids = slices.DeleteFunc(ids, p.dispatcher.track.holds)
		if b.Len() < limit {
			break
		}
		q.After = b.Next
	}
	if paused, err := s.isPaused(ctx, q, ids); err != nil || paused {
		s.none = true
		return f, err
	}
	last := b.Len() < limit && (q.CreatedBefore.IsZero() || !q.CreatedBefore.Before(*died))
	if f, err = p.claimThese(ctx, *died, ids); err != nil {
		return f, err
	}
	f.suspect(eventsOf(b.Expired))
	if s.none = f.len() == 0; s.none && len(ids) > 0 {
		p.leftLocked()
	}
	if last || p.suspected.Add(int64(len(ids))) >= p.dispatcher.inHandLimit() {
		p.died.CompareAndSwap(died, nil)
	}
	return f, nil
}

// suspect makes the deliveries takeovers. The last delivery of an event whose lease expired counts.
func (f *found) suspect(expired []string) {
	for i := range f.ds {
		f.ds[i].takeover, f.ds[i].counted = true, slices.Contains(expired, f.ds[i].id())
	}
}

// isPaused reports whether the next suspect is paused. In order, a paused suspect is not claimed,
// and holds up the events behind it. A row that is leased was read without its kind, so the table
// is asked for the same row, with the paused kinds left out.
func (s *suspects) isPaused(ctx context.Context, q PollQuery, ids []string) (paused bool, err error) {
	p := s.p
	q.Except = p.dispatcher.pauses.kinds()
	if !p.inOrder || len(ids) == 0 || len(q.Except) == 0 {
		return false, nil
	}
	b, err := p.readRows(ctx, &p.patience, q)
	if err != nil {
		return false, err
	}
	others := append(eventIDs(b.Envelopes), eventsOf(b.Expired)...)
	for _, row := range b.Undecodable {
		others = append(others, row.EventID)
	}
	return !slices.Contains(others, ids[0]), nil
}

// takeExpired takes over rows whose lease expired, in a mode without leases: a process died during
// their last delivery. They come one by one.
func (p *poller) takeExpired(ctx context.Context, expired []string) ([]delivery, error) {
	expired = slices.DeleteFunc(expired, p.dispatcher.track.holds)
	if len(expired) == 0 {
		return nil, nil
	}
	room := max(p.takeoverRoomOf(true), 0)
	f, err := p.claimThese(ctx, p.asOf, expired[:min(len(expired), room)])
	if err != nil {
		return nil, err
	}
	f.suspect(expired)
	_ = p.bury(ctx, f.undecodable, f.lease)
	return f.ds, nil
}

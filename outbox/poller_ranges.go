package outbox

import (
	"context"
	"slices"
	"strings"
	"time"
)

// rangeRows reads free rows in the order in which they became due, in passes over the table. Before
// a read, rangeRows takes the right to the range of the rows; see [rights].
type rangeRows struct {
	p      *poller
	rights *rights
	found  bool // earlier reads of the pass found rows
	// expired reads a part of the table in which a pass found rows whose leases expired; nil: no such
	// part.
	expired *PollQuery

	rest     *right // to a range of which a part was read; nil: none
	restFrom Cursor
	batches  int       // the most batches that the next range has
	tookAt   time.Time // when the last range was taken
}

const (
	// maxBatches is the most batches in a range. A range of several batches is taken as fast as a range
	// of a single batch, so processes that share a backlog meet less often.
	maxBatches = 4
	// fastRange is the time from one range to the next that doubles the size of the next range. After a
	// longer time the next range has one batch: rows wait for this process, while other processes may
	// have nothing to do.
	fastRange = 200 * time.Millisecond
)

func (s *rangeRows) begin() { s.p.pass.BeginCycle() }

func (s *rangeRows) room(limit int) int { return limit }

// read reads the next part of a range, or behind the place of the pass: the first gap between the
// ranges of all processes, or a range of this process, in which rows may have become free.
func (s *rangeRows) read(ctx context.Context, limit int) (f found, err error) {
	p, place := s.p, s.p.place()
	if f.right, err = s.restAt(ctx, place); err != nil {
		return f, err
	}
	if f.right != nil {
		err := s.readFree(ctx, s.query(place, f.right.Upto, limit), &f)
		if err == nil {
			s.endRead(place, f.right.Upto, &f)
		}
		return f, err
	}
	var g gap
	err = p.statement(ctx, func(ctx context.Context) (err error) {
		g, err = s.rights.gap(ctx, place)
		return err
	})
	if err != nil {
		return f, err
	}
	if g.held {
		p.pass.Read(place, place, true)
		p.more, f.all = false, true
		return f, nil
	}
	own, inHand := g.own, p.dispatcher.track.inHandOf(g.own)
	f.right = own
	q := s.query(g.after, g.upto, limit+inHand)
	if own == nil {
		q.Limit = s.nextRange(limit)
	}
	reach, err := p.reach(ctx, q)
	if err != nil {
		return f, err
	}
	if q := q; reach.Expired > 0 && s.expired == nil {
		s.expired = &q
	}
	whole := reach.Fresh+reach.Expired < q.Limit
	// All rows are in hand. A row whose outcome is stored is not counted, though its event is still in hand.
	known := own != nil && own.After == g.after && reach.Fresh == inHand && p.dispatcher.track.haveRows(own, inHand)
	if reach.Fresh > 0 && !known {
		if own == nil && reach.End != g.after {
			if f.right, err = s.take(ctx, g, reach.End); f.right == nil {
				return f, err // another process was faster, and the next read begins at the same place
			}
			q.Upto, q.Limit = reach.End, limit
		}
		if err := s.readFree(ctx, q, &f); err != nil {
			return f, err
		}
	}
	f.all = whole && g.upto.IsZero() && s.rest == nil
	end := reach.End
	if whole || own != nil {
		end = g.upto
	}
	s.endRead(place, end, &f)
	return f, nil
}

// query reads rows of a part of the table.
func (s *rangeRows) query(after, upto Cursor, limit int) PollQuery {
	p := s.p
	return PollQuery{
		Now: p.asOf, CreatedBefore: p.createdBefore(), After: after, Upto: upto, Limit: limit, Except: p.except,
		LeaseDuration: p.leaseDuration(),
	}
}

// restAt is the right to the range whose rest begins at the place, with a read under way; nil: no such
// range.
func (s *rangeRows) restAt(ctx context.Context, place Cursor) (*right, error) {
	rest := s.rest
	s.rest = nil
	if rest == nil || place != s.restFrom {
		return nil, nil
	}
	again, err := s.rights.readAgain(ctx, rest)
	if !again {
		return nil, err
	}
	return rest, nil
}

// nextRange is how many rows the next range has at most.
func (s *rangeRows) nextRange(limit int) int {
	if time.Since(s.tookAt) >= fastRange {
		s.batches = 1
	}
	return min(limit*s.batches, MaxBatch)
}

// take takes a gap up to a place; nil when another process was faster.
func (s *rangeRows) take(ctx context.Context, g gap, upto Cursor) (taken *right, err error) {
	err = s.p.statement(ctx, func(ctx context.Context) (err error) {
		taken, err = s.rights.take(ctx, g, upto)
		return err
	})
	if taken != nil {
		s.batches, s.tookAt = min(2*s.batches, maxBatches), time.Now()
	}
	return taken, err
}

// endRead notes a read that ended at a place, unless a part of the range is still to be read.
func (s *rangeRows) endRead(place, end Cursor, f *found) {
	if s.rest != nil {
		end = s.restFrom
	}
	s.p.pass.Read(place, end, f.all)
	s.p.more = !f.all || s.found // rows come free behind the place at any time
	s.found = !f.all && (s.found || f.len() > 0)
}

// readFree reads the rows of a range that have no lease, and leases the postponed rows, which leave the
// range. Rows without a place, which no range has, cannot be delivered.
func (s *rangeRows) readFree(ctx context.Context, q PollQuery, f *found) error {
	p := s.p
	q.FreshOnly = true
	b, err := p.readRows(ctx, p.patienceFrom(q.After), q)
	if err != nil {
		return err
	}
	right := f.right
	*f = p.found(b, "")
	if f.right = right; right == nil {
		f.ds = nil
	} else if b.Len() == q.Limit && b.Next != right.Upto {
		s.rest, s.restFrom = right, b.Next
	}
	// A copy of an event in hand is no row that was found: the next pass would find the copy again.
	f.ds = slices.DeleteFunc(f.ds, func(dl delivery) bool { return p.dispatcher.track.holds(dl.id()) })
	for i := range f.ds {
		f.ds[i].right = right
	}
	f.undecodable = slices.DeleteFunc(f.undecodable, func(row Undecodable) bool { // as they were written
		return p.dispatcher.track.holds(row.EventID)
	})
	if err := p.claimPostponed(ctx, f); err != nil {
		s.leave(ctx, f)
		return notLeased{err}
	}
	return nil
}

// leave gives a range up at once whose postponed rows could not be leased: another process may be able to
// lease them, as when this process gets no answers to COMMITs. The poller then pauses; see [notLeased].
func (s *rangeRows) leave(ctx context.Context, f *found) {
	if s.rest = nil; f.right == nil {
		return
	}
	s.p.dispatcher.track.readEnded(f.right)
	f.right = nil
	ctx, cancel := context.WithTimeout(ctx, rangePatience)
	defer cancel()
	_, _ = s.rights.tidy(ctx) // else the range is given up a little later
}

// reach looks at the rows of a read.
func (p *poller) reach(ctx context.Context, q PollQuery) (reach Reach, err error) {
	err = p.patienceFrom(q.After).Statement(ctx, func(ctx context.Context) (err error) {
		reach, err = p.store.Reach(ctx, p.db, q)
		return err
	})
	return reach, err
}

// rangeTakeovers takes over rows whose leases expired, and the free rows of ranges that expired.
// These rows get leases: an event that the next process finds under a lease that expired had a
// delivery by this process.
type rangeTakeovers struct {
	p      *poller
	free   *rangeRows
	from   *right // to a range that expired; nil: none
	locked bool   // the other rows are locked
}

func (s *rangeTakeovers) begin() { s.locked = false }

func (s *rangeTakeovers) room(limit int) int {
	if !s.waits() || s.locked {
		return 0
	}
	return min(limit, s.p.takeoverRoom())
}

// waits reports whether there is something to take over.
func (s *rangeTakeovers) waits() bool {
	return s.free.expired != nil || s.from != nil || s.free.rights.hasExpired()
}

func (s *rangeTakeovers) read(ctx context.Context, limit int) (f found, err error) {
	if s.free.expired != nil {
		f, err = s.takeRows(ctx, limit)
	} else {
		f, err = s.takeRange(ctx, limit)
	}
	for i := range f.ds {
		f.ds[i].takeover = true
	}
	s.p.takeoverAt = time.Time{}
	if !s.waits() {
		s.p.takeoverAt = time.Now().Add(s.p.opts.Interval)
	}
	return f, err
}

// takeRows takes over rows whose leases expired, in the part of the table where a pass found some.
func (s *rangeTakeovers) takeRows(ctx context.Context, limit int) (f found, err error) {
	p, q := s.p, *s.free.expired
	b, err := p.readRows(ctx, p.patienceFrom(q.After), q)
	if err != nil {
		return f, err
	}
	if len(b.Expired) == 0 {
		s.free.expired = nil // the next pass finds others
		return f, nil
	}
	// All of the rows, or no row, had an owner whose death was not counted.
	isSuspect := func(l Lease) bool { return strings.HasSuffix(l.Name, suspectName) }
	suspects, lease := isSuspect(b.Expired[0]), p.dispatcher.leases.names.Next()
	if suspects {
		lease += suspectName
	}
	ids := eventsOf(slices.DeleteFunc(b.Expired, func(l Lease) bool { return isSuspect(l) != suspects }))
	ids = ids[:min(limit, len(ids))]
	f, _, err = p.claim(ctx, ClaimQuery{Now: p.asOf, Limit: len(ids), EventIDs: ids, ExpiredOnly: true, Lease: lease})
	if err == nil && f.len() == 0 {
		s.wait()
	}
	for i := range f.ds {
		f.ds[i].counted = suspects
	}
	return f, err
}

// end leaves a range of which rows were not taken over to the next process.
func (s *rangeTakeovers) end(ctx context.Context) error {
	if s.from == nil {
		return nil
	}
	err := s.free.rights.expire(ctx, s.from)
	s.from = nil
	return err
}

// takeRange takes over rows of a range that expired. Only one process at a time has the right to do
// so. Each row is moved, so that a late outcome of the process that died changes no row.
func (s *rangeTakeovers) takeRange(ctx context.Context, limit int) (f found, err error) {
	p, rights := s.p, s.free.rights
	if s.from != nil && !rights.lasts(s.from) {
		s.from = nil
	}
	if s.from == nil {
		err = p.statement(ctx, func(ctx context.Context) (err error) {
			s.from, err = rights.takeExpired(ctx)
			return err
		})
		if s.from == nil {
			return f, err
		}
	}
	q := PollQuery{Now: s.from.Upto.AvailableAt, After: s.from.After, Upto: s.from.Upto, Limit: 1, FreshOnly: true}
	f, b, err := p.claim(ctx, ClaimQuery{
		Now: q.Now, After: q.After, Upto: q.Upto, Limit: limit, FreshOnly: true, Move: true, By: rights.endOf(s.from),
		Lease: p.dispatcher.leases.names.Next() + suspectName,
	})
	if err != nil { // the claim may be carried out until the right expires
		p.dispatcher.track.abandon(s.from)
		s.from = nil
		return f, err
	}
	if b.Len() == limit {
		return f, nil
	}
	reach, err := p.reach(ctx, q) // the claim left out rows that are locked
	if err != nil || reach.Fresh > 0 {
		s.wait()
		return f, nil //nolint:nilerr // the next read asks again
	}
	p.dispatcher.track.readEnded(s.from)
	s.from = nil
	return f, nil
}

// wait leaves rows that are locked to a later cycle.
func (s *rangeTakeovers) wait() {
	s.locked = true
	s.p.agenda.Note(s.p.clock.Now().Add(lockedRows))
}

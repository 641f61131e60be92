package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// fenceLength is how many rows of a key are looked at for the leases of a process that died: more
// rows than a run can have.
const fenceLength = 2 * maxRunLength

// keyReader reads and claims runs, for [OrderedByKey].
type keyReader struct {
	p        *poller
	store    RunReader
	length   int
	skipDead bool
	walk     walk
	readAt   time.Time // when the last read began
}

// walk is the way of a cycle over the keys. A walk that has no room for more goes on in the next
// cycle, and then once more from the first key to the last: keys that the walk has passed may be
// free.
type walk struct {
	after EventKey // where the next read begins
	whole bool     // the walk began with the first key
	found bool     // a run
	over  bool     // the walk has ended
}

// begin is called at the beginning of a cycle.
func (w *walk) begin() { *w = walk{after: w.after, whole: w.after == EventKey{}} }

// step takes note of a read.
func (w *walk) step(runs Runs, found bool) {
	w.found = w.found || found
	if w.after = runs.Next; runs.End {
		w.over, w.whole, w.after = w.whole, true, EventKey{}
	}
}

// freeRuns claims runs of free keys, key after key.
type freeRuns struct{ keyReader }

// readsRuns reports whether an event may hold back other events of its key.
func (p *poller) readsRuns() bool {
	_, runs := p.free.(*freeRuns)
	return runs
}

func (s *freeRuns) check(ctx context.Context) error { return s.store.CheckRuns(ctx, s.p.db) }

func (s *freeRuns) begin() { s.walk.begin() }

func (s *freeRuns) room(limit int) int { return limit }

func (s *freeRuns) read(ctx context.Context, limit int) (found, error) {
	ids, _, err := s.readRuns(ctx, RunQuery{Length: min(s.length, limit), Limit: limit})
	if err != nil {
		return found{}, err
	}
	s.p.more = !s.walk.over
	return s.claim(ctx, ids, true)
}

// runTakeovers takes over runs of processes that died, run after run.
type runTakeovers struct {
	keyReader
	more bool // the walk has not ended in this cycle
}

func (s *runTakeovers) begin() {
	s.walk.begin()
	s.more = !s.p.takeoverAt.After(time.Now())
}

func (s *runTakeovers) room(limit int) int {
	if !s.more {
		return 0
	}
	return min(limit, 1, s.p.takeoverRoom()) // one run
}

func (s *runTakeovers) read(ctx context.Context, limit int) (found, error) {
	ids, behind, err := s.readRuns(ctx, RunQuery{Length: fenceLength, Limit: limit, Takeovers: true})
	if err != nil {
		return found{}, err
	}
	s.more, s.p.takeoverAt = !s.walk.over, time.Time{}
	if s.walk.over && !s.walk.found {
		s.p.takeoverAt = time.Now().Add(s.p.opts.Interval)
	}
	if err := s.fence(ctx, behind); err != nil {
		return found{}, err
	}
	f, err := s.claim(ctx, ids, false)
	for i := range f.ds {
		f.ds[i].takeover = true
	}
	return f, err
}

// readRuns reads the next runs, without the runs that have an event in hand. behind are the leases
// of processes that died behind the first events of the runs.
func (s *keyReader) readRuns(ctx context.Context, q RunQuery) (ids [][]string, behind []Lease, err error) {
	p := s.p
	s.readAt = time.Now()
	q.Now, q.CreatedBefore, q.LeaseDuration = p.asOf, p.createdBefore(), p.leaseDuration()
	q.SkipDead, q.Except, q.After = s.skipDead, p.except, s.walk.after
	var runs Runs
	err = p.statement(ctx, func(ctx context.Context) (err error) {
		runs, err = s.store.ReadRuns(ctx, p.db, q)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i, run := range runs.EventIDs {
		if slices.ContainsFunc(run, p.dispatcher.track.holds) {
			continue
		}
		ids = append(ids, run)
		if q.Takeovers {
			behind = append(behind, runs.Behind[i]...)
		}
	}
	s.walk.step(runs, len(ids) > 0)
	return ids, behind, nil
}

// claim claims the events of runs, and keeps each run up to the first event that it did not get:
// another process may have the missing event. A run that does not begin its key any more is given
// back. A process that reads the key after the claim sees the lease, and a process that read the key
// before the claim read no event that came after this look at the key.
//
// claim claims nothing that was read longer ago than a lease lasts, as when the process was
// suspended or the database was away. Other processes may have had the runs since then, with
// further events, and may be dead: fence does not know their leases.
func (s *keyReader) claim(ctx context.Context, runs [][]string, free bool) (f found, err error) {
	p, lasts := s.p, s.p.dispatcher.leases.lasts
	if len(runs) == 0 || time.Since(s.readAt) >= lasts {
		return f, nil
	}
	until := time.Now().Add(lasts)
	ids := slices.Concat(runs...)
	got, _, err := p.claim(ctx, ClaimQuery{Now: p.asOf, Limit: len(ids), EventIDs: ids, FreshOnly: free})
	if err != nil {
		return f, err
	}
	rows := make(map[string]*delivery, len(got.ds)) // to be given back
	for i := range got.ds {
		got.ds[i].until = until
		rows[got.ds[i].id()] = &got.ds[i]
	}
	if free && got.len() < len(ids) { // a transaction that takes events back may have locked the others
		p.leftLocked()
	}
	begin, err := s.beginKeys(ctx, runs, rows, got.undecodable)
	if err != nil {
		p.dispatcher.leases.releaser.Release(got.leases())
		return f, err
	}
	f = found{ds: make([]delivery, 0, len(got.ds)), lease: got.lease}
	for _, run := range runs {
		n := 0
		for begins := begin[run[0]]; begins && n < len(run) && rows[run[n]] != nil; n++ {
			f.ds = append(f.ds, *rows[run[n]])
			delete(rows, run[n])
		}
		if n > 0 {
			f.runs = append(f.runs, n)
		}
	}
	for id := range rows {
		f.back = append(f.back, Lease{id, got.lease})
	}
	for _, row := range got.undecodable { // if it is not the first of its key, the row waits for its turn
		if begin[row.EventID] {
			f.undecodable = append(f.undecodable, row)
		} else {
			f.back = append(f.back, Lease{row.EventID, got.lease})
		}
	}
	return f, nil
}

// beginKeys is the set of claimed first events of runs that are still the first of their keys. An
// event may have come before them after the read: a replayed event, or an event of a transaction
// that committed late. Another process may have claimed that event. Events without an aggregate id
// are keys of their own.
func (s *keyReader) beginKeys(ctx context.Context, runs [][]string, rows map[string]*delivery, undecodable []Undecodable) (map[string]bool, error) {
	begin := make(map[string]bool, len(runs))
	var ids []string
	for _, run := range runs {
		id := run[0]
		switch dl := rows[id]; {
		case dl != nil && dl.env.AggregateID == "":
			begin[id] = true
		case dl != nil, slices.ContainsFunc(undecodable, func(row Undecodable) bool { return row.EventID == id }):
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return begin, nil
	}
	err := s.p.statement(ctx, func(ctx context.Context) (err error) {
		ids, err = s.store.BeginKeys(ctx, s.p.db, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		begin[id] = true
	}
	return begin, nil
}

// fence gives back the leases that a dead process has behind an event that is about to be
// taken over. If that process was only stopped, it has perhaps delivered the events behind, and
// must not store them as done before the first event is delivered again. The events behind are then
// claimed together with the first event, without an attempt more.
func (s *keyReader) fence(ctx context.Context, leases []Lease) error {
	p := s.p
	if len(leases) == 0 {
		return nil
	}
	marks := make([]Mark, len(leases))
	for i, l := range leases {
		marks[i] = Mark{EventID: l.EventID, Lease: l.Name}
	}
	err := p.statement(ctx, func(ctx context.Context) error {
		_, err := p.store.Mark(ctx, p.db, OutcomeReleased, marks)
		return err
	})
	if err != nil {
		return fmt.Errorf("outbox: giving back the leases behind events that are taken over: %w", err)
	}
	return nil
}

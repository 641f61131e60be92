package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// fenceLength is how many rows of a key are looked at for the leases of a process that died: more
// rows than a run can have.
const fenceLength = 2 * maxRunLength

// takeoverTurn: every takeoverTurn-th read looks for runs to take over, while there are other runs.
const takeoverTurn = 4

// runPolling is the state of a poller for [OrderedByKey]. The state belongs to whoever holds the
// poller's token, apart from written.
type runPolling struct {
	reader   RunReader
	length   int
	skipDead bool
	written  atomic.Bool // this process committed events that are due

	walks [2]walk // over the free keys, and over the keys to take over
}

// walk is the way of a cycle over the keys. A walk that has no room for more goes on in the next
// cycle, and then once more from the first key to the last: keys that the walk has passed may be
// free.
type walk struct {
	after EventKey // where the next read begins
	whole bool     // the walk began with the first key
	found bool     // a run
}

// begin is called at the beginning of a cycle.
func (w *walk) begin() { w.whole, w.found = w.after == EventKey{}, false }

// step takes note of the runs that were read and reports whether the walk has ended.
func (w *walk) step(runs Runs) (end bool) {
	if w.after = runs.Next; !runs.End {
		return false
	}
	end, w.after, w.whole = w.whole, EventKey{}, true
	return end
}

// runClaim is a claim of runs.
type runClaim struct {
	lease  string
	read   time.Time
	kind   batchKind
	runs   [][]string
	behind []Lease // to give back before, of processes that died
	end    bool    // of the walk
}

// wroteRuns makes the poller read events that this process committed.
func (p *poller) wroteRuns() {
	p.runs.written.Store(true)
	p.Wake()
}

// cycleByKey is cycle for runs: it claims free runs, key after key, and takes over runs of
// processes that died, run after run.
func (p *poller) cycleByKey(ctx context.Context) (read int, idle time.Duration, err error) {
	written := p.runs.written.Swap(false)
	for i := range p.runs.walks {
		p.runs.walks[i].begin()
	}
	more := [2]bool{plain: true, takeovers: !p.takeoverAt.After(time.Now())}
	for step := 1; more[plain] || more[takeovers]; step++ {
		if err := ctx.Err(); err != nil { // closing: a claim does not see this
			return read, 0, err
		}
		kind := plain
		if more[takeovers] && (!more[plain] || step%takeoverTurn == 0) {
			kind = takeovers
		}
		if err := p.readPauses(ctx); err != nil {
			return read, 0, err
		}
		room := p.room()
		if room <= 0 {
			if written {
				p.dispatcher.notifications.Notify()
			}
			return read, p.opts.Interval, nil
		}
		if room = min(room, p.opts.BatchSize); kind == takeovers {
			room = min(1, p.takeoverRoom()) // one run
		}
		n, goesOn, taken, err := p.runBatch(ctx, kind, room)
		read += n
		more[kind] = goesOn
		switch {
		case err != nil:
			return read, 0, err
		case !taken:
			return read, p.opts.Interval, nil
		}
	}
	p.logTakeovers(false)
	return read, p.idle(), p.noteNextDue(ctx)
}

// runBatch claims some runs and hands them over. more says that the walk over the keys
// has not ended; taken is false when the dispatcher refused a run.
func (p *poller) runBatch(ctx context.Context, kind batchKind, limit int) (n int, more, taken bool, err error) {
	if limit <= 0 {
		return 0, false, true, nil
	}
	c, err := p.readRuns(ctx, kind, limit)
	if err != nil {
		return 0, false, false, err
	}
	if len(c.runs) == 0 {
		return 0, !c.end, true, nil
	}
	b, until, err := p.claimRuns(ctx, &c)
	if err != nil {
		return 0, false, false, err
	}
	p.note() // a backlog makes a long cycle
	p.observe(b)
	return b.Len(), !c.end, p.handOverRuns(ctx, c, b, until), nil
}

// readRuns reads the next runs. Runs with an event that is in hand are left out.
func (p *poller) readRuns(ctx context.Context, kind batchKind, limit int) (c runClaim, err error) {
	began := time.Now()
	now := p.clock.Now()
	p.read = storedTime(now)
	w := &p.runs.walks[kind]
	q := RunQuery{
		Now: p.read, LeaseDuration: p.dispatcher.leases.lasts, SkipDead: p.runs.skipDead, Except: p.dispatcher.except(),
		After: w.after, Length: min(p.runs.length, limit), Limit: limit,
	}
	if p.opts.SkipRecent > 0 {
		q.CreatedBefore = storedTime(now.Add(-p.opts.SkipRecent))
	}
	if kind == takeovers {
		q.Takeovers, q.Length = true, fenceLength
	}
	var runs Runs
	err = p.statement(ctx, func(ctx context.Context) (err error) {
		runs, err = p.runs.reader.ReadRuns(ctx, p.db, q)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("outbox: reading runs of events: %w", err)
	}
	c = runClaim{read: began, kind: kind, end: w.step(runs)}
	for i, ids := range runs.EventIDs {
		if slices.ContainsFunc(ids, p.dispatcher.track.holds) {
			continue
		}
		if kind == takeovers {
			c.behind = append(c.behind, runs.Behind[i]...)
		}
		c.runs = append(c.runs, ids)
	}
	w.found = w.found || len(c.runs) > 0
	if kind == takeovers {
		p.takeoverAt = time.Time{}
		if c.end && !w.found {
			p.takeoverAt = time.Now().Add(p.opts.Interval)
		}
	}
	return c, nil
}

// claimRuns claims the events of runs, and returns until when the leases surely last.
//
// claimRuns claims nothing that was read longer ago than a lease lasts, as when the process was
// suspended or the database was away. Other processes may have had the runs since then, with
// further events, and may be dead: fence does not know their leases.
func (p *poller) claimRuns(ctx context.Context, c *runClaim) (b Batch, until time.Time, err error) {
	if err := p.fence(ctx, c.behind); err != nil {
		return b, until, err
	}
	if time.Since(c.read) >= p.dispatcher.leases.lasts {
		return b, until, nil
	}
	ids := slices.Concat(c.runs...)
	c.lease, until = p.dispatcher.leases.names.Next(), time.Now().Add(p.dispatcher.leases.lasts)
	b, err = p.claim(ctx, ClaimQuery{
		Now: p.read, Limit: len(ids), EventIDs: ids, Lease: c.lease, FreshOnly: c.kind == plain,
	})
	return b, until, err
}

// fence gives back the leases that a process which died has behind an event that is about to be
// taken over. If that process was only stopped, it has perhaps delivered the events behind, and
// must not store them as done before the first event is delivered again. The events behind are then
// claimed together with the first event, without an attempt more.
func (p *poller) fence(ctx context.Context, leases []Lease) error {
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

// handOverRuns hands over the claimed events of each run from its first event on, without a gap,
// and gives back the rest: another process may have the missing events. handOverRuns returns false
// when the dispatcher refused a run.
func (p *poller) handOverRuns(ctx context.Context, c runClaim, b Batch, until time.Time) (taken bool) {
	rows := make(map[string]*Envelope, len(b.Envelopes)) // to be given back
	for i := range b.Envelopes {
		rows[b.Envelopes[i].EventID] = &b.Envelopes[i]
	}
	ds := make([]delivery, 0, len(b.Envelopes)) // a single allocation for all
	taken = true
	for _, ids := range c.runs {
		first := len(ds)
		for _, id := range ids {
			env := rows[id]
			if env == nil || !taken {
				break
			}
			ds = append(ds, delivery{env: env, lease: c.lease, until: until, takeover: c.kind == takeovers})
		}
		n, ok := p.handOverRun(ds[first:])
		taken = taken && ok
		for i := range ds[first : first+n] {
			delete(rows, ds[first+i].id())
		}
	}
	back := p.buryHeads(ctx, c, b.Undecodable)
	for id := range rows {
		back = append(back, Lease{id, c.lease})
	}
	p.dispatcher.leases.releaser.Release(back)
	return taken
}

// handOverRun hands over a run, and returns how many events of the run are not to be given back.
func (p *poller) handOverRun(run []delivery) (n int, ok bool) {
	if len(run) == 0 {
		return 0, true
	}
	n, ok = p.dispatcher.takeInRun(run)
	if run[0].takeover {
		p.takenOver += n
	}
	return n, ok
}

// buryHeads marks rows DEAD that cannot be decoded and are the first of their key. The other rows
// wait for their turn: buryHeads returns their leases.
func (p *poller) buryHeads(ctx context.Context, c runClaim, rows []Undecodable) (back []Lease) {
	var heads []Undecodable
	for _, row := range rows {
		if slices.ContainsFunc(c.runs, func(ids []string) bool { return ids[0] == row.EventID }) {
			heads = append(heads, row)
		} else {
			back = append(back, Lease{row.EventID, c.lease})
		}
	}
	_ = p.bury(ctx, heads, c.lease)
	return back
}

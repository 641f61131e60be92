package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A row is postponed if its available_at is after its created_at: its event was delayed, or tried,
// deferred or replayed before. A transaction may take a postponed row back while the row has no lease
// (see [Store].TakeBack), so in every mode a process leases a postponed row before it delivers the row.
// A row that is due at once may be in hand of a process although it has no lease, and stays due at once
// until an outcome, a replay or a takeover changes it.

// isPostponed reports whether the row of a sealed envelope is postponed.
func (e *Envelope) isPostponed() bool { return e.AvailableAt.After(e.OccurredAt) }

// postponedName ends the names of the leases that postponed rows have in a mode without leases. Such a
// lease is no note that the row may have killed a process; see [suspects].
const postponedName = "/postponed"

// claimPostponed leases the postponed rows among rows that were read without leases. The claimed rows,
// as they are now, take the places of the rows that were read. Rows that are not claimed are left to a
// later read: a transaction takes them back, or another statement has changed them.
func (p *poller) claimPostponed(ctx context.Context, f *found) error {
	p.stopAtPause(f)
	ids := p.postponed(f.ds)
	if ids == nil {
		return nil
	}
	claimed := map[string]*delivery{}
	if free := slices.DeleteFunc(slices.Clone(ids), p.dispatcher.track.holds); len(free) > 0 {
		began := time.Now()
		c, _, err := p.claim(ctx, ClaimQuery{Now: p.asOf, Limit: len(free), EventIDs: free, FreshOnly: true, Lease: p.postponedLease()})
		if err != nil {
			return err
		}
		for i := range c.ds {
			if p.dispatcher.claims {
				c.ds[i].until = began.Add(p.dispatcher.leases.lasts)
			}
			claimed[c.ds[i].id()] = &c.ds[i]
		}
		f.undecodable = append(f.undecodable, c.undecodable...)
		if c.len() < len(free) {
			p.leftLocked()
		}
	}
	f.ds = slices.DeleteFunc(f.ds, func(dl delivery) bool {
		return dl.env.isPostponed() && claimed[dl.id()] == nil
	})
	for i := range f.ds {
		if dl := claimed[f.ds[i].id()]; dl != nil {
			f.ds[i] = *dl
		}
	}
	return nil
}

// stopAtPause leaves out, in order, a paused event and the events behind it: a claim of rows that are
// given back at once would wake the poller again and again.
func (p *poller) stopAtPause(f *found) {
	if !p.inOrder {
		return
	}
	i := slices.IndexFunc(f.ds, func(dl delivery) bool { return p.dispatcher.leaves(dl.env) && !p.dispatcher.track.holds(dl.id()) })
	if i >= 0 {
		f.ds, f.stopped = f.ds[:i], true
	}
}

// postponed are the ids of the rows that are postponed.
func (p *poller) postponed(ds []delivery) (ids []string) {
	for i := range ds {
		if ds[i].env.isPostponed() {
			ids = append(ids, ds[i].id())
		}
	}
	return ids
}

// postponedLease names the lease of a claim of postponed rows.
func (p *poller) postponedLease() string {
	lease := p.dispatcher.leases.names.Next()
	if !p.dispatcher.claims {
		lease += postponedName
	}
	return lease
}

// leftLocked makes the poller look again soon for rows that were read and not claimed. While the rows
// are locked, the looks become rarer, up to one in a second.
func (p *poller) leftLocked() {
	now := p.clock.Now()
	if p.lockedSince.IsZero() {
		p.lockedSince = now
	}
	p.locked = true
	p.agenda.Note(now.Add(min(max(now.Sub(p.lockedSince), lockedRows), time.Second)))
}

// readRowsFreed is readRows in a mode without leases. If the rows include postponed rows whose leases
// have expired, it gives these leases back and reads again.
func (p *poller) readRowsFreed(ctx context.Context, read func() (Batch, error)) (b Batch, err error) {
	for {
		if b, err = read(); err != nil || len(b.Expired) == 0 {
			return b, err
		}
		freed, err := p.freePostponed(ctx, b.Expired)
		if err != nil || freed == 0 {
			return b, err
		}
	}
}

func isPostponedLease(l Lease) bool { return strings.HasSuffix(l.Name, postponedName) }

// freePostponed gives back the leases of postponed rows that this process does not have in hand: a
// process that held the table before had the rows, or this process has just given them back. The rows
// are free then, as rows are that a process reads without leases: no attempt is counted.
func (p *poller) freePostponed(ctx context.Context, leases []Lease) (freed int, err error) {
	var marks []Mark
	for _, l := range leases {
		if isPostponedLease(l) && !p.dispatcher.track.holds(l.EventID) {
			marks = append(marks, Mark{EventID: l.EventID, Lease: l.Name})
		}
	}
	if len(marks) == 0 {
		return 0, nil
	}
	err = p.statement(ctx, func(ctx context.Context) error {
		left, err := p.store.Mark(ctx, p.db, OutcomeReleased, marks)
		freed = len(marks) - len(left)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("outbox: giving back the leases of a process that held the table before: %w", err)
	}
	return freed, nil
}

// freeAllPostponed gives back the leases that a process which died had of postponed rows, before these
// rows are read as suspects. It looks at as many rows as a process has in hand at most. Other such
// leases expire.
func (p *poller) freeAllPostponed(ctx context.Context, died time.Time) error {
	q := PollQuery{Now: died, Limit: MaxBatch, Except: p.except, LeaseDuration: time.Microsecond}
	for rows := int64(0); rows < p.dispatcher.inHandLimit(); {
		b, err := p.readRows(ctx, &p.patience, q)
		if err != nil {
			return err
		}
		if _, err := p.freePostponed(ctx, b.Expired); err != nil {
			return err
		}
		rows += int64(b.Len())
		if b.Len() < q.Limit || b.Next == q.After {
			return nil
		}
		q.After = b.Next
	}
	return nil
}

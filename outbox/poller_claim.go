package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// claimGrace is how long a claim may go on after closing began.
const claimGrace = 5 * time.Second

// claim claims rows under a name that is the claim's alone. A claim that fails is given up with its
// lease: the server may have carried out the claim, or do so later, so the releaser looks for rows
// under that lease. After a deadlock there are no such rows.
func (p *poller) claim(ctx context.Context, q ClaimQuery) (f found, b Batch, err error) {
	q.LeaseDuration = p.leaseDuration()
	if q.Lease == "" {
		q.Lease = p.dispatcher.leases.names.Next()
	}
	patient := &p.patience
	if len(q.EventIDs) == 0 {
		patient = p.patienceFrom(q.After)
	}
	err = patient.Statement(ctx, func(limited context.Context) (err error) {
		claim, cancel := claimContext(ctx, limited)
		defer cancel()
		b, err = p.store.Claim(claim, p.db, q)
		return err
	})
	if err != nil {
		if !sqlerr.IsDeadlock(err) {
			p.dispatcher.leases.releaser.DoubtClaim(q.Lease)
		}
		return f, b, err
	}
	return p.found(b, q.Lease), b, nil
}

// claimThese claims the events that are not in hand.
func (p *poller) claimThese(ctx context.Context, now time.Time, ids []string) (f found, err error) {
	ids = slices.DeleteFunc(slices.Clone(ids), p.dispatcher.track.holds)
	if len(ids) > 0 {
		f, _, err = p.claim(ctx, ClaimQuery{Now: now, Limit: len(ids), EventIDs: ids})
	}
	return f, err
}

// found makes deliveries of rows; lease is the name that claimed rows have.
func (p *poller) found(b Batch, lease string) found {
	ds := make([]delivery, len(b.Envelopes)) // a single allocation for all
	for i := range ds {
		ds[i].env, ds[i].lease, ds[i].term = &b.Envelopes[i], lease, p.term
	}
	return found{ds: ds, undecodable: b.Undecodable, lease: lease}
}

// leases are the leases of all rows.
func (f *found) leases() []Lease {
	leases := append(leasesOf(f.ds), f.back...)
	for _, row := range f.undecodable {
		leases = append(leases, Lease{row.EventID, f.lease})
	}
	return leases
}

// len is the number of rows.
func (f *found) len() int { return len(f.ds) + len(f.undecodable) + len(f.back) }

// claimContext is the context of a claim: as limited, but closing, which ends ctx, does not break
// off the claim at once. The claim goes on for a while, and the claimed events are delivered or
// given back.
func claimContext(ctx, limited context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := limited.Deadline()
	claim, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	stop := context.AfterFunc(ctx, func() {
		wait.Sleep(claim, claimGrace)
		cancel()
	})
	return claim, func() {
		stop()
		cancel()
	}
}

// takeoversWait reports whether there may be more to take over than there was
// room for.
func (p *poller) takeoversWait() bool {
	d := p.dispatcher
	return d.claims && p.takenOver > 0 && p.takeoverAt.IsZero() || p.died.Load() != nil
}

// takeoverRoom is how many events may be taken over now. If waiting makes room, the poller looks
// again then.
func (p *poller) takeoverRoom() int {
	return p.takeoverRoomOf(p.dispatcher.rules.Load().few)
}

func (p *poller) takeoverRoomOf(oneByOne bool) int {
	room, waits := p.dispatcher.track.takeoverRoom(p.dispatcher.opts.Workers, oneByOne)
	if room <= 0 && waits {
		p.agenda.Note(p.clock.Now().Add(takeoverStep))
	}
	return room
}

// leaseDuration is the age at which a lease expires.
func (p *poller) leaseDuration() time.Duration {
	if p.inOrder { // nothing else delivers from the table, and the order counts
		return time.Microsecond
	}
	return p.dispatcher.leases.lasts
}

// logTakeovers writes one line for the events that were taken over, when there are no more.
func (p *poller) logTakeovers(closing bool) {
	if p.takenOver > 0 && (closing || !p.takeoversWait()) {
		p.log.Info("outbox: took over events that a dead process may have had in hand", logKeyCount, p.takenOver, logKeyOwner, p.dispatcher.leases.names.Owner)
		p.takenOver = 0
	}
}

// postponedName ends the names of the leases that postponed rows have in a mode without leases. Such a
// lease is no note that the row may have killed a process; see [suspects].
const postponedName = "/postponed"

// claimPostponed leases the postponed rows among rows that were read without leases. The claimed rows,
// as they are now, take the places of the rows that were read. Rows that are not claimed are left to a
// later read: a transaction takes them back, or another statement has changed them. In order, the rows
// behind such a row are left too; see [poller.stopAtLocked].
func (p *poller) claimPostponed(ctx context.Context, f *found) error {
	p.stopAtPause(f)
	early := p.stopWhileLocked(f)
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
		switch {
		case c.len() < len(free):
			p.leftLocked()
			p.stopAtLocked(f, claimed, free)
		case early: // the row is free again
			p.agenda.Note(p.clock.Now())
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

// stopAtLocked leaves out, in order, the first row that was to be claimed and was not, and the rows behind
// it: if the transaction that takes the row back is rolled back, the row comes first. The leases of claimed
// rows behind it are given back.
func (p *poller) stopAtLocked(f *found, claimed map[string]*delivery, asked []string) {
	if !p.inOrder {
		return
	}
	isLocked := func(dl delivery) bool {
		undecodable := slices.ContainsFunc(f.undecodable, func(row Undecodable) bool { return row.EventID == dl.id() })
		return slices.Contains(asked, dl.id()) && claimed[dl.id()] == nil && !undecodable
	}
	i := slices.IndexFunc(f.ds, isLocked)
	if i < 0 {
		return
	}
	for _, dl := range f.ds[i:] {
		if c := claimed[dl.id()]; c != nil {
			f.back = append(f.back, Lease{dl.id(), c.lease})
		}
	}
	f.ds, f.stopped = f.ds[:i], true
}

// stopWhileLocked leaves out, in order, the rows behind the first row that is to be claimed, if the last
// cycle could not claim a row. Otherwise each look at a locked row would claim the rows behind it and give
// them back, which wakes the poller for the next look.
func (p *poller) stopWhileLocked(f *found) (stopped bool) {
	if !p.inOrder || p.lockedSince.IsZero() {
		return false
	}
	i := slices.IndexFunc(f.ds, func(dl delivery) bool { return dl.env.isPostponed() && !p.dispatcher.track.holds(dl.id()) })
	if i < 0 || i+1 == len(f.ds) {
		return false
	}
	f.ds, f.stopped = f.ds[:i+1], true
	return true
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

// freeAllPostponed gives back the leases that a dead process had of postponed rows, before these
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

package outbox

import (
	"context"
	"fmt"
	"slices"
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
		return f, b, fmt.Errorf("outbox: claiming due events: %w", err)
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
		p.log.Info("outbox: took over events that a process which died may have had in hand", logKeyCount, p.takenOver, logKeyOwner, p.dispatcher.leases.names.Owner)
		p.takenOver = 0
	}
}

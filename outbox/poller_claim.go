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

// claimDue claims due events.
func (p *poller) claimDue(ctx context.Context, b batchQuery, q ClaimQuery) (Batch, string, error) {
	q.Lease, q.Limit, q.FreshOnly = p.dispatcher.leases.names.Next(), b.limit, b.kind == plain
	if q.FreshOnly {
		q.After = p.place()
	}
	batch, err := p.claim(ctx, q)
	if err != nil {
		return batch, q.Lease, err
	}
	if q.FreshOnly {
		p.pass.Read(q.After, batch.Next, batch.Len() < b.limit)
	}
	return batch, q.Lease, err
}

// claim claims. A claim that fails is given up with its lease: the server may have carried out the
// claim, or do so later, so the releaser looks for rows under that lease. After a deadlock there
// are no such rows.
func (p *poller) claim(ctx context.Context, q ClaimQuery) (b Batch, err error) {
	q.LeaseDuration = p.leaseDuration()
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
		return Batch{}, fmt.Errorf("outbox: claiming due events: %w", err)
	}
	return b, nil
}

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

// claimSuspects leases some of the rows that were due when the process that held the table died, up
// to as many as a process can have in hand. The lease is a note for the next process: an event that
// the next process finds leased had a delivery by this process. In order, that delivery counts at
// once; else the event waits until its lease expires, and the other events come first.
func (p *poller) claimSuspects(ctx context.Context, limit int, createdBefore time.Time) (b Batch, lease string, err error) {
	died := p.died.Load()
	q := PollQuery{Now: *died, CreatedBefore: createdBefore, Limit: limit, LeaseDuration: p.leaseDuration(), Except: p.except}
	var ids []string
	for len(ids) == 0 { // events that this process has in hand are passed over
		err = p.statement(ctx, func(ctx context.Context) (err error) {
			b, err = p.store.Poll(ctx, p.db, q)
			return err
		})
		if err != nil {
			return Batch{}, "", fmt.Errorf("outbox: polling due events: %w", err)
		}
		ids = eventIDs(b.Envelopes)
		for _, row := range b.Undecodable {
			ids = append(ids, row.EventID)
		}
		if p.inOrder {
			ids = append(ids, b.Expired...)
		}
		ids = slices.DeleteFunc(ids, p.dispatcher.track.holds)
		if b.Len() < limit {
			break
		}
		q.After = b.Next
	}
	if paused, err := p.isPaused(ctx, q, ids); err != nil || paused {
		return Batch{}, "", err
	}
	last := b.Len() < limit && (createdBefore.IsZero() || !createdBefore.Before(*died))
	expired := b.Expired
	if b, lease, err = p.claimThese(ctx, *died, ids); err != nil {
		return Batch{}, "", err
	}
	b.Expired = expired
	if last || p.suspected.Add(int64(len(ids))) >= p.dispatcher.inHandLimit() {
		p.died.CompareAndSwap(died, nil)
	}
	return b, lease, nil
}

// isPaused reports whether the next suspect is paused. In order, a paused suspect is not claimed,
// and holds up the events behind it. A row that is leased was read without its kind, so the table
// is asked for the same row, with the paused kinds left out.
func (p *poller) isPaused(ctx context.Context, q PollQuery, ids []string) (paused bool, err error) {
	q.Except = p.dispatcher.pauses.kinds()
	if !p.inOrder || len(ids) == 0 || len(q.Except) == 0 {
		return false, nil
	}
	var b Batch
	err = p.statement(ctx, func(ctx context.Context) (err error) {
		b, err = p.store.Poll(ctx, p.db, q)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("outbox: polling due events: %w", err)
	}
	others := append(eventIDs(b.Envelopes), b.Expired...)
	for _, row := range b.Undecodable {
		others = append(others, row.EventID)
	}
	return !slices.Contains(others, ids[0]), nil
}

// takeExpired takes over rows whose lease expired, in a mode without leases: a
// process died during their last delivery. They come one by one.
func (p *poller) takeExpired(ctx context.Context, expired []string) error {
	if len(expired) == 0 {
		return nil
	}
	room := max(p.takeoverRoomOf(true), 0)
	b, lease, err := p.claimThese(ctx, p.read, expired[:min(len(expired), room)])
	if err != nil {
		return err
	}
	for i := range b.Envelopes {
		p.handOver(&delivery{env: &b.Envelopes[i], lease: lease, term: p.term}, takeovers, expired)
	}
	_ = p.bury(ctx, b.Undecodable, lease)
	return nil
}

// claimThese claims the events that are not in hand.
func (p *poller) claimThese(ctx context.Context, now time.Time, ids []string) (Batch, string, error) {
	ids = slices.DeleteFunc(slices.Clone(ids), p.dispatcher.track.holds)
	if len(ids) == 0 {
		return Batch{}, "", nil
	}
	lease := p.dispatcher.leases.names.Next()
	b, err := p.claim(ctx, ClaimQuery{Now: now, Limit: len(ids), EventIDs: ids, Lease: lease})
	return b, lease, err
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
	return p.takeoverRoomOf(p.dispatcher.opts.MaxAttempts < spareAttempts)
}

// spareAttempts is the number of attempts with which an event can survive being beside a poison
// event a few times. With fewer attempts, events are taken over one by one.
const spareAttempts = 5

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

// giveBack releases claimed events that the dispatcher refused.
func (p *poller) giveBack(envs []Envelope, lease string) {
	if lease == "" {
		return
	}
	leases := make([]Lease, len(envs))
	for i := range envs {
		leases[i] = Lease{envs[i].EventID, lease}
	}
	p.dispatcher.leases.releaser.Release(leases)
}

// logTakeovers writes one line for the events that were taken over, when there are no more.
func (p *poller) logTakeovers(closing bool) {
	if p.takenOver > 0 && (closing || !p.takeoversWait()) {
		p.log.Info("outbox: took over events that a process which died may have had in hand", logKeyCount, p.takenOver, logKeyOwner, p.dispatcher.leases.names.Owner)
		p.takenOver = 0
	}
}

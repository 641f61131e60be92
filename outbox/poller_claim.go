package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// claimGrace is how long a claim may go on after closing began.
const claimGrace = 5 * time.Second

// claimDue claims what is due. A claim that failed may have been carried out: it
// is made again under the same lease, which returns its rows.
func (p *Poller) claimDue(ctx context.Context, q ClaimQuery) (Batch, string, error) {
	again := p.claiming != ""
	if !again {
		p.claiming = p.dispatcher.names.next()
	}
	q.Lease = p.claiming
	b, err := p.claim(ctx, q)
	if err == nil && (!again || b.Len() < q.Limit) { // else there may be more of them
		p.claiming = ""
	}
	return b, q.Lease, err
}

func (p *Poller) claim(ctx context.Context, q ClaimQuery) (b Batch, err error) {
	q.LockTimeout = p.lockTimeout()
	err = p.statement(ctx, func(limited context.Context) (err error) {
		claim, cancel := claimContext(ctx, limited)
		defer cancel()
		b, err = p.store.Claim(claim, p.db, q)
		return err
	})
	if err != nil {
		return Batch{}, fmt.Errorf("outbox: claiming due events: %w", err)
	}
	return b, nil
}

// claimContext is the context of a claim: as limited, but closing, which ends
// ctx, does not break it off at once. It goes on for a while, and what it claimed
// is delivered or given back.
func claimContext(ctx, limited context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := limited.Deadline()
	claim, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	stop := context.AfterFunc(ctx, func() {
		sleep(claim, claimGrace)
		cancel()
	})
	return claim, func() {
		stop()
		cancel()
	}
}

// claimSuspects leases some of the rows that were due when the process that held
// the table died. Each costs an attempt, so that an event that kills its process
// ends DEAD. Those that were suspect before are left until their leases expire:
// the others come first.
func (p *Poller) claimSuspects(ctx context.Context, limit int) (b Batch, lease string, err error) {
	died := p.died.Load()
	q := PollQuery{Now: *died, Limit: limit, LockTimeout: p.lockTimeout()}
	var ids []string
	for len(ids) == 0 { // what this process has in hand is passed over
		err = p.statement(ctx, func(ctx context.Context) (err error) {
			b, err = p.store.Poll(ctx, p.db, q)
			return err
		})
		if err != nil {
			return Batch{}, "", fmt.Errorf("outbox: polling due events: %w", err)
		}
		for _, row := range b.Undecodable {
			ids = append(ids, row.EventID)
		}
		ids = slices.DeleteFunc(slices.Concat(ids, eventIDs(b.Envelopes), b.Expired), p.dispatcher.track.holds)
		if b.Len() < limit {
			p.died.CompareAndSwap(died, nil) // these are the last
			break
		}
		q.After = b.Next
	}
	return p.claimThese(ctx, *died, ids, true)
}

// takeExpired takes over rows whose lease expired, in a mode without leases: they
// were suspect before, and come one by one.
func (p *Poller) takeExpired(ctx context.Context, expired []string) error {
	if len(expired) == 0 || p.dispatcher == nil {
		return nil
	}
	room := max(p.takeoverRoomOf(true), 0)
	b, lease, err := p.claimThese(ctx, p.read, expired[:min(len(expired), room)], false)
	if err != nil {
		return err
	}
	for i := range b.Envelopes {
		p.handOver(&b.Envelopes[i], lease, takeovers)
	}
	p.bury(ctx, b.Undecodable, lease)
	return nil
}

// claimThese claims those of the events that are not in hand.
func (p *Poller) claimThese(ctx context.Context, now time.Time, ids []string, countAll bool) (Batch, string, error) {
	ids = slices.DeleteFunc(ids, p.dispatcher.track.holds)
	if len(ids) == 0 {
		return Batch{}, "", nil
	}
	lease := p.dispatcher.names.next()
	b, err := p.claim(ctx, ClaimQuery{Now: now, Limit: len(ids), EventIDs: ids, CountAll: countAll, Lease: lease})
	return b, lease, err
}

// takeoversWait reports whether there may be more to take over than there was
// room for.
func (p *Poller) takeoversWait() bool {
	d := p.dispatcher
	return d != nil && (d.claims && p.takenOver > 0 && p.takeoverAt.IsZero() || p.died.Load() != nil)
}

// takeoverRoom is how many events may be taken over now. The poller looks again
// when there is room that comes by waiting.
func (p *Poller) takeoverRoom() int {
	return p.takeoverRoomOf(p.dispatcher.opts.MaxAttempts < spareAttempts)
}

// spareAttempts are as many as let an event survive that is beside a poison event
// a few times. With fewer, events are taken over one by one.
const spareAttempts = 5

func (p *Poller) takeoverRoomOf(oneByOne bool) int {
	room, waits := p.dispatcher.track.takeoverRoom(p.dispatcher.opts.Workers, oneByOne)
	if room <= 0 && waits {
		p.agenda.note(p.clock.Now().Add(takeoverStep))
	}
	return room
}

// lockTimeout is the age at which a lease expires.
func (p *Poller) lockTimeout() time.Duration {
	switch {
	case p.inOrder: // nothing else delivers from the table, and the order counts
		return time.Microsecond
	case p.dispatcher == nil:
		return DefaultLockTimeout
	default:
		return p.dispatcher.lockTimeout
	}
}

// giveBack releases claimed events that the handler refused.
func (p *Poller) giveBack(envs []Envelope, lease string) {
	if lease == "" {
		return
	}
	leases := make([]Lease, len(envs))
	for i := range envs {
		leases[i] = Lease{envs[i].EventID, lease}
	}
	p.dispatcher.releaser.release(leases)
}

// logTakeovers writes one line for the events that were taken over.
func (p *Poller) logTakeovers() {
	if p.takenOver > 0 && !p.takeoversWait() {
		p.log.Info("outbox: took over events that a process which died may have had in hand", logKeyCount, p.takenOver, logKeyOwner, p.dispatcher.names.owner)
		p.takenOver = 0
	}
}

package outbox

import (
	"context"
	"fmt"
	"time"
)

// What the poller does in [MultiNode] alone.

// claimGrace is how long a claim may go on after closing began.
const claimGrace = 5 * time.Second

func (p *Poller) readClaimed(ctx context.Context, now, createdBefore time.Time, limit int, takeovers bool) (Batch, error) {
	ctx, cancel := claimContext(ctx)
	defer cancel()
	b, err := p.store.Claim(ctx, p.db, ClaimQuery{
		Now: now, CreatedBefore: createdBefore, Limit: limit,
		Lease: p.claim.Owner, LockTimeout: p.claim.LockTimeout, FreshOnly: p.bounded() && !takeovers,
	})
	if err != nil {
		return Batch{}, fmt.Errorf("outbox: claiming due events: %w", err)
	}
	return b, nil
}

// claimContext is the context of a claim. One that closing broke off might hold
// rows that nobody knows of: it goes on for a while, and what it brings is taken
// or given back. A database that is silent for longer does not hold up closing.
func claimContext(ctx context.Context) (context.Context, context.CancelFunc) {
	claim, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	stop := context.AfterFunc(ctx, func() {
		sleep(claim, claimGrace)
		cancel()
	})
	return claim, func() {
		stop()
		cancel()
	}
}

// takeoverRoom is how many rows may be claimed now whose leases expired. They are
// looked for once in an interval, and while there are some, as soon as those at
// hand are done: so in a cycle a claim that leaves them out follows each that does
// not.
func (p *Poller) takeoverRoom() int {
	if !p.bounded() || time.Now().Before(p.takeoverAt) {
		return 0
	}
	return p.feed.takeoverRoom()
}

// bounded reports whether takeovers are bounded: a handler that is no dispatcher
// does not say when they are done.
func (p *Poller) bounded() bool { return p.feed != nil && p.claim != nil }

// takeOver hands over an event of a claim that takes over. An event without an
// attempt was not: a takeover costs one.
func (p *Poller) takeOver(env Envelope) bool {
	if env.Attempts == 0 {
		return p.handler.Handle(env)
	}
	p.takeoverAt = time.Time{}
	return p.feed.takeOver(env)
}

// giveBack releases claimed events that the handler refused.
func (p *Poller) giveBack(envs []Envelope) {
	if p.claim == nil {
		return
	}
	marks := make([]Mark, len(envs))
	for i := range envs {
		marks[i] = Mark{EventID: envs[i].EventID}
	}
	// The poller may be closing: its context must not keep others from taking
	// over at once.
	ctx, cancel := context.WithTimeout(context.Background(), DefaultDrainTimeout)
	defer cancel()
	if _, err := markOwned(ctx, p.store, p.db, OutcomeReleased, p.owner(), marks); err != nil {
		p.log.Error("outbox: claimed events could not be given back, their leases have to expire", logKeyCount, len(envs), logKeyError, err.Error())
	}
}

func (p *Poller) owner() string {
	if p.claim == nil {
		return ""
	}
	return p.claim.Owner
}

package outbox

import (
	"context"
	"time"
)

// reserve keeps the poller's hands off the events of an open transaction: on
// this node through the tracker, on others through a lease, whose owner it
// returns. Events that the hot queue would have no room for are left to the
// poller from the start.
func (d *Dispatcher) reserve(envs []Envelope) (owner string) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	room := cap(d.hot) - len(d.hot)
	if d.state != running || room == 0 {
		return ""
	}
	if d.claim == nil {
		d.track.reserve(envs, room)
		return ""
	}
	// A lease is for the whole batch: a part of it could not be told from the
	// rest when the transaction is over.
	if len(envs) > room {
		return ""
	}
	d.track.reserve(envs, len(envs))
	return d.claim.Owner
}

func (d *Dispatcher) unreserve(envs []Envelope) { d.track.unreserve(envs) }

// committed takes the events of a committed transaction into the hot queue,
// without waiting. inserted is when their lease began.
func (d *Dispatcher) committed(envs []Envelope, owner string, inserted time.Time) {
	// After half of its time the lease may end before the delivery does.
	fresh := owner == "" || time.Since(inserted) < d.claim.LockTimeout/2
	dropped := 0
	var leased []string
	for i := range envs {
		env := &envs[i]
		if env.IsDelayed() {
			d.metrics.HotSkippedDelayed(kindOf(env))
			d.dueAt(env.AvailableAt)
			continue
		}
		if fresh && d.promote(env) {
			d.metrics.HotEnqueued(kindOf(env))
			continue
		}
		d.track.unreserve(envs[i : i+1])
		d.metrics.HotDropped(kindOf(env))
		if owner != "" {
			leased = append(leased, env.EventID)
		}
		dropped++
	}
	if len(leased) > 0 && !d.complete.releaseLeases(leased, inserted) {
		d.releaseLate(leased)
	}
	if dropped > 0 {
		d.tellDepths()
		d.drops.add(dropped)
		d.wakePoller()
	}
}

// promote moves a reserved event into the hot queue.
func (d *Dispatcher) promote(env *Envelope) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.state != running || !d.track.promote(env) {
		return false
	}
	if offer(d.hot, env) {
		return true
	}
	d.track.release(env.EventID)
	return false
}

// wakePoller tells the poller that there is something to read now.
func (d *Dispatcher) wakePoller() {
	if p := d.poller.Load(); p != nil {
		p.Wake()
	}
}

// dueAt tells the poller of a time at which an event becomes due.
func (d *Dispatcher) dueAt(t time.Time) {
	if p := d.poller.Load(); p != nil {
		p.DueAt(t)
	}
}

// tellDepths tells how full the queues are: with each batch of outcomes, when an
// event is dropped, and, for workers that hang, with each cycle of the poller.
func (d *Dispatcher) tellDepths() { d.metrics.QueueDepths(d.depths()) }

// The seams with the poller; see [Poller].

func (d *Dispatcher) bind(p *Poller, batch int) {
	d.poller.Store(p)
	d.lowWater = cap(d.cold) - wantedRoom(batch, cap(d.cold))
}

func (d *Dispatcher) roomFreed() <-chan struct{} { return d.room }
func (d *Dispatcher) wantRoom() bool             { return d.hasRoom() }
func (d *Dispatcher) beginRead()                 { d.track.beginRead() }
func (d *Dispatcher) endRead()                   { d.track.endRead() }

// beginClaim waits until nothing else is between it and endClaim.
func (d *Dispatcher) beginClaim(ctx context.Context) error {
	select {
	case d.claiming <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Dispatcher) endClaim() { <-d.claiming }

// wantedRoom is how much of the cold queue is to be free before the poller asks
// again: a batch, but no more than half, so that workers do not run dry.
func wantedRoom(batch, capacity int) int { return max(1, min(batch, capacity/2)) }

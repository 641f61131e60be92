package outbox

import (
	"context"
	"time"
)

// stored lets go of events whose outcome is stored, and tells of it. n is how
// many rows the store changed.
func (c *completer) stored(kind Outcome, group []*outcome, n int) {
	if envs := trackedEnvs(group); c.owner != "" {
		c.d.track.stored(envs)
	} else {
		c.d.track.releaseAll(envs)
	}
	if kind == OutcomeReleased {
		c.d.wakePoller()
		return
	}
	accepted, lost := c.accepted(c.ctx, kind, group, n)
	if lost > 0 {
		c.d.metrics.LeaseLost(lost)
		c.leaseLost.add(lost, logKeyOwner, c.owner, logKeyError, ErrLeaseLost.Error())
	}
	now := c.d.clock.Now()
	for _, o := range accepted {
		c.observe(o, now)
	}
}

// accepted are the outcomes that the table took from this node, and how many it
// did not because other nodes hold the events now, or have brought them to an end
// before. A store changes fewer rows than it was given when leases were lost, or
// when it is asked again because its first answer was. Which rows it was is read;
// from a store that cannot be asked, or does not answer, only all or none is known.
func (c *completer) accepted(ctx context.Context, kind Outcome, group []*outcome, n int) (accepted []*outcome, lost int) {
	missing := len(group) - n
	if missing <= 0 || c.owner == "" {
		return group, 0
	}
	states, ok := c.states(ctx, group)
	switch {
	case ok:
		accepted = shown(kind, group, states)
		if !group[0].tried { // nor is any other of the group: what more rows show is other nodes' doing
			accepted = accepted[:min(n, len(accepted))]
		}
		return accepted, len(group) - len(accepted)
	case n == 0:
		return nil, missing
	default:
		return group, missing
	}
}

// shown are the outcomes that rows show.
func shown(kind Outcome, group []*outcome, states map[string]RowState) []*outcome {
	var seen []*outcome
	for _, o := range group {
		if state, there := states[o.mark.EventID]; o.overtaken || state.shows(kind, there) {
			seen = append(seen, o)
		}
	}
	return seen
}

func (c *completer) states(context.Context, []*outcome) (map[string]RowState, bool) {
	return nil, false
}

// shows reports whether a row, if there is one, stands as after that outcome.
func (s RowState) shows(kind Outcome, there bool) bool {
	if !there {
		return kind == OutcomeDelete
	}
	switch kind {
	case OutcomeDone:
		return s.Status == StatusDone
	case OutcomeDead:
		return s.Status == StatusDead
	case OutcomeRetry:
		return s.Status == StatusRetry && s.Lease == ""
	case OutcomeDeferred:
		return s.Status == StatusNew && s.Lease == ""
	case OutcomeReleased:
		return s.Lease == ""
	default:
		return false
	}
}

// trackedEnvs are the events of a group that the tracker holds; a lease given up
// early is of no event in flight.
func trackedEnvs(group []*outcome) []*Envelope {
	envs := make([]*Envelope, 0, len(group))
	for _, o := range group {
		if o.env != nil {
			envs = append(envs, o.env)
		}
	}
	return envs
}

func (c *completer) observe(o *outcome, now time.Time) {
	m := c.d.metrics
	switch o.kind {
	case OutcomeDone, OutcomeDelete:
		m.Delivered(kindOf(o.env), now.Sub(o.env.OccurredAt))
	case OutcomeRetry:
		m.Failed(kindOf(o.env))
		c.d.dueAt(o.mark.AvailableAt)
	case OutcomeDeferred:
		m.Deferred(kindOf(o.env))
		c.d.dueAt(o.mark.AvailableAt)
	case OutcomeDead:
		m.Died(kindOf(o.env))
		c.d.log.Error("outbox: event is dead", deliveryAttrs(o, max(o.env.Attempts, o.mark.Attempts))...)
	case OutcomeReleased:
	}
}

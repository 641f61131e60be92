package outbox

import "time"

// stored lets go of events whose outcome is stored, and tells of it.
func (c *completer) stored(kind MarkKind, group []*outcome, n int) {
	if ids := trackedIDs(group); c.owner != "" {
		c.d.track.stored(ids)
	} else {
		c.d.track.release(ids...)
	}
	if lost := len(group) - n; lost > 0 && c.owner != "" && kind != MarkReleased {
		c.d.metrics.LeaseLost(lost)
		c.leaseLost.add(lost, logKeyOwner, c.owner, logKeyError, ErrLeaseLost.Error())
	}
	now := c.d.clock.Now()
	for _, o := range group {
		c.observe(o, now)
	}
	if kind == MarkReleased {
		c.d.wakePoller()
	}
}

// trackedIDs are the events of a group that the tracker holds; a lease given up
// early is of no event in flight.
func trackedIDs(group []*outcome) []string {
	ids := make([]string, 0, len(group))
	for _, o := range group {
		if o.env != nil {
			ids = append(ids, o.mark.EventID)
		}
	}
	return ids
}

func (c *completer) observe(o *outcome, now time.Time) {
	m := c.d.metrics
	switch o.kind {
	case MarkDone, MarkDelete:
		m.Delivered(kindOf(o.env), now.Sub(o.env.OccurredAt))
	case MarkRetry:
		m.Failed(kindOf(o.env))
		c.d.dueAt(o.mark.AvailableAt)
	case MarkDeferred:
		m.Deferred(kindOf(o.env))
		c.d.dueAt(o.mark.AvailableAt)
	case MarkDead:
		m.Died(kindOf(o.env))
		attempts := o.env.Attempts
		if o.mark.CountAttempt {
			attempts++
		}
		c.d.log.Error("outbox: event is dead", deliveryAttrs(o, attempts)...)
	case MarkReleased:
	}
}

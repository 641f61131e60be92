package outbox

import "time"

// stored reports the outcomes of a statement. lost are the outcomes that changed no row, and
// again the outcomes that are to be stored again, each in the order of the group.
func (c *completer) stored(group, lost, again []*delivery) {
	c.pending.Add(int64(len(again) - len(group)))
	if len(lost) > 0 {
		c.metrics.LeaseLost(len(lost))
		c.logLost(lost)
	}
	now := c.clock.Now()
	for _, d := range group {
		switch {
		case len(lost) > 0 && lost[0] == d:
			lost = lost[1:]
		case len(again) > 0 && again[0] == d:
			again = again[1:]
		default:
			c.observe(d, now)
		}
	}
}

// logLost reports outcomes that changed no row.
func (c *completer) logLost(lost []*delivery) {
	rowless, id := 0, ""
	for _, d := range lost {
		if d.rowless {
			rowless, id = rowless+1, d.id()
		}
	}
	if rowless > 0 {
		c.rowless.Add(rowless, logKeyEventID, id, logKeyOwner, c.leases.names.Owner)
	}
	if n := len(lost) - rowless; n > 0 {
		c.leaseLost.Add(n, logKeyOwner, c.leases.names.Owner, logKeyError, ErrLeaseLost.Error())
	}
}

// shows reports whether a row stands as after that outcome. Only a statement
// that was repeated has to ask: the first may have been carried out.
func (s RowState) shows(outcome Outcome) bool {
	if !s.Exists {
		return outcome == OutcomeDelete || outcome == OutcomeSplit
	}
	switch outcome {
	case OutcomeDone, OutcomeSplit:
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

// final reports whether the row is at its end: it will not be claimed again.
func (o Outcome) final() bool {
	return o == OutcomeDone || o == OutcomeDelete || o == OutcomeDead || o == OutcomeSplit
}

func (c *completer) observe(d *delivery, now time.Time) {
	m, kind := c.metrics, d.kind()
	if c.byKey {
		c.told.wakePoller() // for the rest of its key
	}
	switch d.outcome {
	case OutcomeDone, OutcomeDelete:
		m.Delivered(kind, now.Sub(d.env.OccurredAt))
	case OutcomeRetry:
		m.Failed(kind)
		c.told.dueAt(d.next)
	case OutcomeDeferred:
		m.Deferred(kind)
		c.told.dueAt(d.next)
	case OutcomeDead:
		m.Died(kind)
		c.deaths.Add(causeOfFailure(d), deliveryAttrs(d, max(d.env.Attempts, d.attempts))...)
	case OutcomeSplit:
		if d.answers.done > 0 {
			m.Delivered(kind, now.Sub(d.env.OccurredAt))
		}
		for _, row := range d.rows() {
			c.observe(row, now)
		}
	case OutcomeReleased:
	}
}

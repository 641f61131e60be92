package checker

import (
	"slices"
	"time"
)

// The changes of events that wait; see [Change].
const (
	Cancel     = "cancel"
	Reschedule = "reschedule"
	Replace    = "replace"
)

// change is a change of an event by a transaction that stands.
type change struct {
	Change
	at time.Time // when the statement had locked the row, until the end of the transaction
}

// arrangeChanges collects the changes of each event. It is not known which events a transaction changed
// if it changed some of several.
func (f *facts) arrangeChanges() {
	for _, r := range f.Records {
		if r.Op != OpChanged {
			continue
		}
		for _, of := range r.Events {
			e := f.byID[of.ID]
			switch {
			case e == nil:
				f.broken(RuleRecords, of.ID, "it was to be changed, and it was never written")
			case !f.Orders[r.Tx] || r.Change.Changed == 0:
			case r.Change.Changed == len(r.Events):
				e.changes = append(e.changes, change{*r.Change, r.At})
			default:
				e.unsure = true
			}
		}
	}
}

// cancelled reports whether a transaction that stands cancelled the event.
func (e *event) cancelled() bool {
	return slices.ContainsFunc(e.changes, func(c change) bool { return c.Does == Cancel })
}

// mayBeCancelled reports whether the event may have been cancelled.
func (e *event) mayBeCancelled() bool { return e.unsure || e.cancelled() }

// at is the state of an event that the changes before a time left: the last change, and since when.
func (e *event) at(t time.Time) (state Change, since time.Time) {
	state = Change{Due: e.Due, Content: e.ID}
	for _, c := range e.changes {
		if !c.at.Before(t) {
			break
		}
		since, state.Does = c.at, c.Does
		if !c.Due.IsZero() {
			state.Due = c.Due
		}
		if c.Content != "" {
			state.Content = c.Content
		}
	}
	return state, since
}

// checkTakenBack checks the rules of events that are taken back.
func (f *facts) checkTakenBack() {
	for _, r := range f.Records {
		if r.Op == OpChanged && !r.Change.Only {
			f.checkCounts(r)
		}
	}
	for _, e := range f.events {
		switch {
		case e.unsure:
		case !e.stands && len(e.changes) > 0:
			f.broken(RuleTakenBack, e.ID, "a %s changed it, but the event %s", e.changes[0].Does, f.fate(e.ID))
		case e.stands && (len(e.changes) > 0 || !e.Due.IsZero()):
			f.checkInHand(e)
			f.checkStates(e)
			f.checkLast(e)
		}
	}
}

// checkInHand checks that no change found the event in hand, or delivered.
func (f *facts) checkInHand(e *event) {
	for _, c := range e.changes {
		for _, d := range f.to[Target{Event: e.ID}] {
			under := d.begin.Before(c.at) && d.end.After(c.at)
			done := d.result == Done && d.end.Before(c.at)
			if (under || done) && !f.explains(d, c.at) && !f.lost(d, d.begin, c.at) {
				f.broken(RuleTakenBack, e.ID, "a %s changed it %v after %s began a delivery (%s)", c.Does, c.at.Sub(d.begin), d.process, d.result)
				return
			}
		}
	}
}

// lost reports whether a fault explains that a process delivers an event that another process may have
// had in hand since: the fault kept the process from renewing its lease.
func (f *facts) lost(d *delivery, from, until time.Time) bool {
	return f.faults.during(d.process, from.Add(-2*f.Promise.Lease), until, Stop, Network, Server, Clock)
}

// checkStates checks each delivery against the changes before it.
func (f *facts) checkStates(e *event) {
	for _, d := range f.to[Target{Event: e.ID}] {
		state, since := e.at(d.begin)
		early := state.Due.Sub(d.begin.Add(d.ahead))
		switch {
		case !since.IsZero() && f.lost(d, since, d.begin):
		case state.Does == Cancel:
			f.broken(RuleCancelled, e.ID, "%s began %v after it was cancelled", d.process, d.begin.Sub(since))
			return
		case d.content != "" && d.content != state.Content:
			f.broken(RuleLatest, e.ID, "%s began with the content %q in place of %q", d.process, d.content, state.Content)
			return
		case early > exactly && !f.faults.during(d.process, d.begin.Add(-2*f.Promise.Lease), d.begin, Clock):
			f.broken(RuleDue, e.ID, "%s began %v before it was due", d.process, early)
			return
		}
	}
}

// checkLast checks that an event whose row is DONE or gone was delivered after its last change.
func (f *facts) checkLast(e *event) {
	row, ok := f.Rows[Target{Event: e.ID}]
	t := Target{Event: e.ID}
	if len(e.changes) == 0 || e.cancelled() || ok && row.Status != statusDone || f.deleted[t] {
		return
	}
	last := e.changes[len(e.changes)-1]
	if !slices.ContainsFunc(f.to[t], func(d *delivery) bool { return d.result == Done && d.begin.After(last.at) }) {
		f.broken(RuleLatest, e.ID, "no delivery after its last change, a %s, succeeded", last.Does)
	}
}

// checkCounts checks the counts that a transaction got.
func (f *facts) checkCounts(r Record) {
	c := r.Change
	sum := c.Changed + c.InHand + c.Dead + c.Delivered
	if sum > len(r.Events) || sum < len(r.Events) && !c.ByKey {
		f.broken(RuleTakenBack, r.Events[0].ID, "a %s of %d events counts %d", c.Does, len(r.Events), sum)
		return
	}
	for _, of := range r.Events {
		e := f.byID[of.ID]
		if e == nil || !e.stands || e.unsure || e.tx.ended == OpUnknown {
			continue
		}
		state, _ := e.at(r.At)
		deliveries := f.to[Target{Event: e.ID}]
		begun := slices.ContainsFunc(deliveries, func(d *delivery) bool { return d.begin.Before(r.At) })
		done := slices.ContainsFunc(deliveries, func(d *delivery) bool { return d.result == Done && d.end.Before(r.At) })
		switch {
		case c.Delivered == len(r.Events) && !done && state.Does != Cancel && !f.deleted[Target{Event: e.ID}]:
			f.broken(RuleTakenBack, e.ID, "a %s counts it as delivered, and no delivery had succeeded", c.Does)
			return
		case c.InHand == len(r.Events) && !begun && state.Due.Sub(r.At) > aboutToBegin && !f.Promise.Unordered:
			f.broken(RuleTakenBack, e.ID, "a %s counts it as in hand %v before it is due", c.Does, state.Due.Sub(r.At))
			return
		}
	}
}

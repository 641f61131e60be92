package outbox

import (
	"slices"
	"time"
)

// Waiting chooses events that wait, for [Writer.Cancel] and [Writer.Reschedule]: either EventIDs, or
// Kind and AggregateID. An event waits if it was delayed, failed, deferred or replayed, and no process
// has it in hand. An event that is due as soon as it is committed waits only in the transaction that wrote
// it: after the commit a process may have it in hand at any time.
type Waiting struct {
	// EventIDs are the ids that [Writer.Write] returned. When an event of several listeners is split, each
	// listener that is not done gets an event of its own, with another id, which [Outbox.FindEvents] lists;
	// the event with the id that Write returned is then delivered.
	EventIDs []string
	// Kind and AggregateID choose the events of a kind that have this aggregate id. An empty aggregate
	// type is [Global]. The store needs an index; see sqlstore.WithKeyIndex and
	// sqlstore.WithSearchIndex.
	Kind        EventKind
	AggregateID string
	// DueAfter and DueBefore, with Kind and AggregateID, choose events by the time at which they are due:
	// DueAfter <= due < DueBefore, both in whole microseconds and from the year 1000 to 9999. Zero: no bound.
	DueAfter, DueBefore time.Time
}

// TakenBack says what became of the events that were to be changed.
type TakenBack struct {
	// Changed is the number of the events that are changed if the transaction commits.
	Changed int
	// InHand is the number of pending events that were left alone, because a process has them in hand or
	// may have: they are leased, or were due as soon as another transaction committed them.
	InHand int
	// Dead is the number of dead letters, which were left alone.
	Dead int
	// Delivered is the number of the EventIDs whose rows are DONE or gone. An event that was never
	// written counts too. Zero for a choice by Kind and AggregateID.
	Delivered int
}

// Replacement is the content that an event gets in place of its own; see [Writer.Replace].
type Replacement struct {
	// Payload is required.
	Payload Payload
	// Headers replace all headers of the event. May be empty. An event for one of several listeners stays
	// an event for this listener.
	Headers map[string]string
	// AvailableAt is the earliest time of delivery. Zero: as before.
	AvailableAt time.Time
}

// Change is what [Store].TakeBack does to the rows that wait.
type Change struct {
	// Cancel deletes the rows. It excludes the other fields.
	Cancel bool
	// AvailableAt is the new available_at of the rows, if it is later than created_at. Otherwise the rows
	// get the time a microsecond after created_at, so that they stay postponed. Zero: as before.
	AvailableAt time.Time
	// Uncommitted: the transaction itself has inserted the rows, by their ids, so no process has them in hand.
	// The NEW rows are changed even if they are not postponed or have a lease, and a row that is changed loses
	// the lease. Only Changed is counted.
	Uncommitted bool
	// Content has the new payload and headers of the row, and nothing else; nil: as before. Content is for
	// events by their ids. The row keeps its headers [HeaderListener] and [HeaderEventID].
	Content *Envelope
}

// chooses reports whether a sealed choice has an event.
func (w *Waiting) chooses(env *Envelope) bool {
	if len(w.EventIDs) > 0 {
		_, is := slices.BinarySearch(w.EventIDs, env.EventID)
		return is
	}
	return kindOf(env) == w.Kind && env.AggregateID == w.AggregateID &&
		(w.DueAfter.IsZero() || !env.AvailableAt.Before(w.DueAfter)) && (w.DueBefore.IsZero() || env.AvailableAt.Before(w.DueBefore))
}

// seal checks a choice and a change, and brings both into the form that a store gets.
func (w Waiting) seal(c *Change) (Waiting, error) {
	v := validator{what: "Waiting"}
	byKey := w.AggregateID != "" || w.Kind != (EventKind{})
	switch {
	case len(w.EventIDs) > 0 && (byKey || !w.DueAfter.IsZero() || !w.DueBefore.IsZero()):
		v.add("EventIDs", "exclude Kind, AggregateID, DueAfter and DueBefore")
	case len(w.EventIDs) > 0:
		for _, id := range w.EventIDs {
			v.text("EventIDs", id, MaxEventIDLength)
		}
		if slices.Contains(w.EventIDs, "") {
			v.add("EventIDs", "has an empty id")
		}
		w.EventIDs = slices.Compact(slices.Sorted(slices.Values(w.EventIDs)))
	case !byKey:
		v.add("EventIDs", "is empty, and so are Kind and AggregateID; give the ids of events, or a kind and an aggregate id")
	default:
		kind := validator{what: v.what + ".Kind"}
		w.Kind.validate(&kind)
		v.errs = append(v.errs, kind.errs...)
		if w.Kind = w.Kind.orGlobal(); w.AggregateID == "" {
			v.add("AggregateID", "is required with Kind")
		}
		v.text("AggregateID", w.AggregateID, MaxAggregateIDLength)
		w.DueAfter, w.DueBefore = v.bound("DueAfter", w.DueAfter), v.bound("DueBefore", w.DueBefore)
	}
	if c.Content != nil && byKey {
		v.add("EventIDs", "is empty; a Change with Content is for events by their ids")
	}
	c.validate(&v)
	return w, v.err()
}

// bound checks a bound of the due time, and returns it as databases store times. Zero: no bound.
func (v *validator) bound(field string, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	v.time(field, t)
	return storedTime(t)
}

func (c *Change) validate(v *validator) {
	if !c.AvailableAt.IsZero() {
		c.AvailableAt = storedTime(c.AvailableAt)
		at := validator{what: "Change"}
		at.time("AvailableAt", c.AvailableAt)
		v.errs = append(v.errs, at.errs...)
	}
	if c.Content == nil {
		if !c.Cancel && c.AvailableAt.IsZero() {
			v.errs = append(v.errs, &FieldError{Field: "Change.AvailableAt", Problem: "is zero; give the time at which the event is to be due"})
		}
		return
	}
	content := validator{what: "Replacement"}
	content.headers(c.Content.Headers)
	content.payload(&c.Content.Payload, "")
	v.errs = append(v.errs, content.errs...)
}

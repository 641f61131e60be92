package checker

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// uniqueKey is a unique key, which counts among the events of a type.
type uniqueKey struct{ eventType, key string }

// checkUnique checks the rules of unique keys.
func (f *facts) checkUnique() {
	with := map[uniqueKey][]*event{} // the events that stand, in the order of their COMMITs
	for _, e := range f.events {
		if e.Unique != "" && e.stands {
			k := uniqueKey{e.Type, e.Unique}
			with[k] = append(with[k], e)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(with), func(x, y uniqueKey) int {
		return cmp.Or(cmp.Compare(x.eventType, y.eventType), cmp.Compare(x.key, y.key))
	}) {
		slices.SortStableFunc(with[k], func(x, y *event) int { return x.tx.commit.Compare(y.tx.commit) })
		f.checkOnePending(k, with[k])
	}
	for _, e := range f.events {
		if !e.keptAt.IsZero() && f.Orders[e.tx.id] && !e.taken {
			f.checkKeptOut(e, with[uniqueKey{e.Type, e.Unique}])
		}
	}
}

// checkOnePending checks [RuleUnique]. An event is surely pending from the record before its COMMIT,
// when its row was inserted, until the end of its first success. Nothing is known of an event that
// died.
func (f *facts) checkOnePending(k uniqueKey, events []*event) {
	var last *event // of the events so far, the event that was pending for the longest
	var until time.Time
	for _, e := range events {
		end := f.firstSuccess(e)
		if end.IsZero() || e.Latest || f.dead(e) || f.intervened(e) {
			continue
		}
		if last != nil && e.tx.commit.Before(until) {
			f.brokenKey(RuleUnique, k.key, e.ID, "it was written while %s was pending", last.ID)
			return
		}
		if end.After(until) {
			last, until = e, end
		}
	}
}

// firstSuccess is when the first delivery of an event ended with a success; zero: no delivery did.
func (f *facts) firstSuccess(e *event) time.Time {
	for _, t := range f.targets(e) {
		for _, d := range f.to[t] {
			if d.result == Done {
				return d.end
			}
		}
	}
	return time.Time{}
}

// checkKeptOut checks [RuleKeptOut] for an event that was kept out. with are the events with the key.
func (f *facts) checkKeptOut(e *event, with []*event) {
	by := f.byID[e.kept]
	switch {
	case by == nil || by == e || by.Type != e.Type || by.Unique != e.Unique:
		f.brokenKey(RuleKeptOut, e.Unique, e.ID, "it was kept out by %q, which does not have its key", e.kept)
		return
	case !by.stands:
		f.brokenKey(RuleKeptOut, e.Unique, e.ID, "it was kept out by %s, which %s", by.ID, f.fate(by.ID))
		return
	case by.written.After(e.keptAt):
		f.brokenKey(RuleKeptOut, e.Unique, e.ID, "it was kept out by %s, which was written later", by.ID)
		return
	case f.intervened(by): // a replay makes an event pending again
		return
	}
	for _, next := range with {
		// The row of by was there when next was written, and next was there when e was.
		if next != by && by.tx.commit.Before(next.written) && next.tx.commit.Before(e.written) {
			f.brokenKey(RuleKeptOut, e.Unique, e.ID, "it was kept out by %s, which had ended: %s was written after it", by.ID, next.ID)
			return
		}
	}
	if d := f.lastDelivery(by); d != nil && d.result == Done && d.end.Add(f.Promise.Lease).Before(e.written) && !f.faults.during(d.process, d.begin, e.written) {
		f.brokenKey(RuleKeptOut, e.Unique, e.ID, "it was kept out by %s, which was delivered %v before", by.ID, e.written.Sub(d.end))
	}
}

// lastDelivery is the delivery of an event that began last; nil: the event was not delivered.
func (f *facts) lastDelivery(e *event) (last *delivery) {
	for _, t := range f.targets(e) {
		for _, d := range f.to[t] {
			if last == nil || d.begin.After(last.begin) {
				last = d
			}
		}
	}
	return last
}

package checker

import (
	"maps"
	"slices"
)

// checkKeys checks the order within each key.
func (f *facts) checkKeys() {
	if !f.Promise.ordered() {
		return
	}
	of := map[string][]*delivery{} // the deliveries of each key
	for _, d := range f.deliveries {
		if e := f.byID[d.Event]; e != nil && e.stands && e.Key != "" && !e.Delayed {
			of[e.Key] = append(of[e.Key], d)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		f.checkOverlaps(key, of[key])
		k := orderOfKey{f: f, key: key, events: f.keys[key], at: -1, last: map[Target]*delivery{}, stopped: map[string]fault{}}
		for _, d := range of[key] {
			k.delivery(d)
		}
		k.end()
	}
}

// checkOverlaps checks [RuleOneAtATime]. Two deliveries of the same event to the same listener are
// left to the rules for repeats.
func (f *facts) checkOverlaps(key string, deliveries []*delivery) {
	var open []*delivery
	for _, d := range deliveries {
		open = slices.DeleteFunc(open, func(o *delivery) bool {
			if !o.end.After(d.begin) {
				return true
			}
			if o.Target == d.Target || f.explains(o, d.begin) {
				return false
			}
			f.brokenKey(RuleOneAtATime, key, d.Event, "%s began while %s delivered %v", d.process, o.process, o.Target)
			return true // once is enough
		})
		open = append(open, d)
	}
}

// orderOfKey follows the deliveries of a key.
type orderOfKey struct {
	f      *facts
	key    string
	events []*event
	at     int // the place of the event that was delivered last; -1: no event was delivered
	last   map[Target]*delivery
	// stopped are the processes' stops for which a delivery was already forgiven.
	stopped map[string]fault
}

// delivery checks the next delivery. The delivery repeats the event of the last delivery or an
// earlier event, and the events behind that event then come again; or it continues behind the last
// event.
func (k *orderOfKey) delivery(d *delivery) {
	e := k.f.byID[d.Event]
	if k.f.Promise.SkipDead && k.f.intervened(e) {
		return // the event comes when it was replayed, and nothing waits for it
	}
	place := e.place
	switch {
	case place > k.at:
		k.goOn(d, place)
	case k.late(d, place):
		return
	}
	k.at = place
	k.last[d.Target] = d
}

// late reports whether a repeat is the delivery that a process may still begin when the process
// continues after a stop that was longer than the lease. The key goes on without this delivery.
func (k *orderOfKey) late(d *delivery, place int) bool {
	stop, ok := k.f.afterStop(d)
	switch {
	case !ok || place < k.at && k.stopped[d.process] == stop:
		return false
	case place == k.at: // the delivery may as well be the right one
		return d.result != Done
	default:
		k.stopped[d.process] = stop
		return true
	}
}

// goOn checks that the event that was delivered last has succeeded, and that no event between the
// two was left out.
func (k *orderOfKey) goOn(d *delivery, place int) {
	if k.at >= 0 && !k.settled(k.events[k.at]) {
		k.f.brokenKey(RuleOrder, k.key, d.Event, "%s began without a success of the event before, %s", d.process, k.events[k.at].ID)
	}
	for _, e := range k.events[k.at+1 : place] {
		if !k.passed(e) {
			k.f.brokenKey(RuleOrder, k.key, d.Event, "%s began before %s, which is in front of it", d.process, e.ID)
			return
		}
	}
}

// settled reports whether the last delivery of an event to each listener was a success.
func (k *orderOfKey) settled(e *event) bool {
	return k.passed(e) || !slices.ContainsFunc(k.f.targets(e), func(t Target) bool {
		d := k.last[t]
		done := d != nil && d.result == Done || k.f.Promise.Once[e.Type] && k.f.Effects[t] > 0
		return !done
	})
}

// passed reports whether the key may go on without the event.
func (k *orderOfKey) passed(e *event) bool {
	return k.f.Promise.SkipDead && (k.f.dead(e) || k.f.intervened(e)) || k.f.deleted[Target{Event: e.ID}] || k.f.dropped(e) ||
		slices.ContainsFunc(k.f.targets(e), func(t Target) bool { return k.f.deleted[t] })
}

// end checks that the events behind the last delivery were not delivered earlier.
func (k *orderOfKey) end() {
	for _, e := range k.events[k.at+1:] {
		delivered := slices.ContainsFunc(k.f.targets(e), func(t Target) bool { return k.last[t] != nil })
		if delivered && !k.passed(e) && !k.f.blocked(e) {
			k.f.brokenKey(RuleOrder, k.key, e.ID, "the last delivery of the key was that of %s, in front of it", k.events[k.at].ID)
			return
		}
	}
}

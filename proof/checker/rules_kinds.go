package checker

import (
	"slices"
	"strings"
	"time"
)

// aboutToBegin is how long after a process has looked whether a delivery may begin the listener may
// record the beginning.
const aboutToBegin = time.Second

// checkExpires checks [RuleExpires].
func (f *facts) checkExpires() {
	for _, e := range f.events {
		expires, is := f.Promise.Expires[e.Type]
		if !e.stands {
			continue
		}
		row := f.Rows[Target{Event: e.ID}]
		dead := row.Status == statusDead && strings.HasPrefix(row.LastError, "expired")
		switch {
		case !is && dead:
			f.broken(RuleExpires, e.ID, "the row is DEAD (%s), and %s never expires", row.LastError, e.Type)
		case is && dead && f.Promise.DropExpired:
			f.broken(RuleExpires, e.ID, "the row is DEAD (%s), and expired events are deleted", row.LastError)
		case is:
			f.checkLate(e, expires)
			f.checkEarly(e, expires)
		}
	}
}

// checkLate checks that no delivery of an event began after it expired.
func (f *facts) checkLate(e *event, expires time.Duration) {
	for _, t := range f.targets(e) {
		for _, d := range f.to[t] {
			late := d.begin.Add(d.ahead).Sub(e.Occurred) - expires
			if late > aboutToBegin && !f.faults.during(d.process, d.begin.Add(-late), d.begin, Stop, Server, Clock) {
				f.broken(RuleExpires, e.ID, "%s began %v after it expired", d.process, late)
				return
			}
		}
	}
}

// exactly is how exact the times are that the database records.
const exactly = 2 * time.Millisecond

// checkEarly checks that an event did not expire early. When clocks were stepped, any time may be right.
// The row of an event that was delivered may have been deleted for that reason.
func (f *facts) checkEarly(e *event, expires time.Duration) {
	if f.Promise.Unordered || f.delivered(Target{Event: e.ID}) {
		return
	}
	for _, at := range f.expiries[e.ID] {
		if early := expires - at.Sub(e.Occurred); early > exactly {
			f.broken(RuleExpires, e.ID, "it expired %v early", early)
			return
		}
	}
}

// dropped reports whether an event expired and was deleted.
func (f *facts) dropped(e *event) bool {
	_, kept := f.Rows[Target{Event: e.ID}]
	return f.Promise.DropExpired && f.Promise.Expires[e.Type] > 0 && !kept && len(f.expiries[e.ID]) > 0
}

// expiredAfter reports whether an event expired, perhaps again, after a time.
func (f *facts) expiredAfter(e *event, at time.Time) bool {
	return slices.ContainsFunc(f.expiries[e.ID], func(expired time.Time) bool { return !expired.Before(at) })
}

// checkCounted checks [RuleCounted].
func (f *facts) checkCounted() {
	for _, e := range f.events {
		targets := f.targets(e)
		if !e.stands || len(targets) > 1 || f.intervened(e) {
			continue
		}
		f.checkAttemptsOf(e, f.to[targets[0]])
	}
}

// checkAttemptsOf compares the attempts of each delivery of an event, and at last of its DEAD row, with
// the delivery before.
func (f *facts) checkAttemptsOf(e *event, deliveries []*delivery) {
	most, since := 0, e.written
	for _, d := range deliveries {
		if d.attempt > most && !f.faults.anywhere(since.Add(-2*f.Promise.Lease), d.begin) {
			f.broken(RuleCounted, e.ID, "%s delivered it as attempt %d; the deliveries before failed %d times", d.process, d.attempt, most)
			return
		}
		most, since = d.attempt, d.begin
		switch d.result {
		case Failed, Dropped, "":
			most++
		}
	}
	row, end := f.Rows[Target{Event: e.ID}], f.Records[len(f.Records)-1].At
	if row.Status == statusDead && row.Attempts > most && !f.faults.anywhere(since.Add(-2*f.Promise.Lease), end) {
		f.broken(RuleCounted, e.ID, "the row has %d attempts; the deliveries failed %d times", row.Attempts, most)
	}
}

// checkPaused checks [RulePaused].
func (f *facts) checkPaused() {
	since := map[string]map[string]time.Time{} // by process and type
	for _, r := range f.Records {
		switch r.Op {
		case OpPauses:
			now := map[string]time.Time{}
			for _, paused := range r.Types {
				now[paused] = r.At
				if before, was := since[r.Process][paused]; was {
					now[paused] = before
				}
			}
			since[r.Process] = now
		case OpBegan:
			e := f.byID[r.Event]
			if e == nil {
				continue
			}
			at, paused := since[r.Process][e.Type]
			if paused && r.At.Sub(at) > aboutToBegin && !f.faults.during(r.Process, at, r.At, Stop, Server) {
				f.broken(RulePaused, r.Event, "%s began %v after it had learned that %s is paused", r.Process, r.At.Sub(at), e.Type)
			}
		default:
		}
	}
}

// shareLasts is how long the share of a process in a fleet-wide bound lasts unless it is renewed.
const shareLasts = 10 * time.Second

// checkBounded checks [RuleBounded].
func (f *facts) checkBounded() {
	f.checkBounds(f.Promise.Bounds, func(e *event) string { return e.Type })
	f.checkBounds(f.Promise.KeyBounds, func(e *event) string { return e.Type + " of the key " + e.Key })
}

// checkBounds checks the bounds of types of events: a bound is for each subject.
func (f *facts) checkBounds(bounds map[string]int, subject func(e *event) string) {
	under := map[string][]*delivery{} // by subject; those that have not ended, as far as the sweep has come
	for _, d := range f.deliveries {  // by their beginnings
		e := f.byID[d.Event]
		if e == nil || bounds[e.Type] == 0 {
			continue
		}
		of := subject(e)
		now := slices.DeleteFunc(under[of], func(before *delivery) bool { return !before.end.After(d.begin) })
		now = append(now, d)
		under[of] = now
		counted := 0
		for _, running := range now {
			if !f.faults.during(running.process, running.begin.Add(-2*shareLasts), d.begin, Stop, Network, Server, Clock) {
				counted++
			}
		}
		if counted > bounds[e.Type] {
			f.broken(RuleBounded, d.Event, "%d deliveries of %s run at once, and the bound is %d", counted, of, bounds[e.Type])
			return
		}
	}
}

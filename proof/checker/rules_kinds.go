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

package outbox

import (
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// agenda is when the poller has to look, beside its interval. It keeps a fixed
// number of times, however many it is given.
type agenda struct {
	woken   chan struct{} // a token: look now
	changed chan struct{} // a token: there is an earlier time on the agenda

	mu    sync.Mutex
	due   time.Time // the earliest time that an event is known to become due
	looks [len(lookDelays)]look
}

// lookDelays are when to look for rows of transactions that the outbox does not see end.
var lookDelays = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}

// look is one of those: the next time, and the latest call that asked for it.
// Calls that come while it is set share it; when it has passed, it is set again
// for the latest of them.
type look struct{ at, asked time.Time }

func (a *agenda) init() {
	a.woken = make(chan struct{}, 1)
	a.changed = make(chan struct{}, 1)
}

func (a *agenda) wake() { wait.Signal(a.woken) }

// note keeps the earliest of the times; true when t is that.
func (a *agenda) note(t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.due.IsZero() && !t.Before(a.due) {
		return false
	}
	a.due = t
	return true
}

// dueAt notes a time and makes the poller set its timer again.
func (a *agenda) dueAt(t time.Time) {
	if a.note(t) {
		wait.Signal(a.changed)
	}
}

func (a *agenda) lookAgain(now time.Time) {
	a.mu.Lock()
	for i := range a.looks {
		l := &a.looks[i]
		l.asked = now
		if l.at.IsZero() {
			l.at = now.Add(lookDelays[i])
		}
	}
	a.mu.Unlock()
	wait.Signal(a.changed)
}

// begin strikes out what the cycle that begins now takes care of.
func (a *agenda) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.due.After(now) {
		a.due = time.Time{}
	}
	for i := range a.looks {
		l := &a.looks[i]
		if l.at.IsZero() || l.at.After(now) {
			continue
		}
		if again := l.asked.Add(lookDelays[i]); again.After(now) {
			l.at = again
		} else {
			*l = look{}
		}
	}
}

// next is how long it is until the earliest time on the agenda; wait.Never if it is empty.
func (a *agenda) next(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := wait.Never
	until := func(t time.Time) {
		if !t.IsZero() {
			rest = min(rest, max(t.Sub(now), 0))
		}
	}
	until(a.due)
	for i := range a.looks {
		until(a.looks[i].at)
	}
	return rest
}

// idle is how long to sleep when nothing is due.
func (p *Poller) idle() time.Duration {
	if p.opts.SkipRecent > 0 {
		return min(p.opts.Interval, p.opts.SkipRecent) // rows that are left out for being recent are due soon
	}
	return p.opts.Interval
}

// waitForRoom is how long to sleep when the handler is full. A dispatcher says
// when it has room; any other handler has to be asked.
func (p *Poller) waitForRoom() time.Duration {
	if p.dispatcher != nil {
		return p.opts.Interval
	}
	return min(p.opts.Interval, 50*time.Millisecond)
}

// Package agenda keeps the times at which a loop has to look, beside its interval.
package agenda

import (
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Agenda keeps a fixed number of times, however many times are noted. An Agenda is safe for
// concurrent use.
type Agenda struct {
	// Woken has a token when the loop has to look now.
	Woken chan struct{}
	// Changed has a token when there is an earlier time: see Next.
	Changed chan struct{}

	mu    sync.Mutex
	due   time.Time // the earliest time that was noted
	looks [len(delays)]look
}

// delays are when to look for rows of transactions that the outbox does not see end.
var delays = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}

// look is the state of a delay: the next time, and the latest call that asked for a look. Calls
// that come while the time is set share the time; when the time has passed, it is set again for the
// latest call.
type look struct{ at, asked time.Time }

// New makes an empty agenda.
func New() *Agenda {
	return &Agenda{Woken: make(chan struct{}, 1), Changed: make(chan struct{}, 1)}
}

// Wake makes the loop look now.
func (a *Agenda) Wake() { wait.Signal(a.Woken) }

// Note keeps the earliest of the noted times; true when t is the earliest.
func (a *Agenda) Note(t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.due.IsZero() && !t.Before(a.due) {
		return false
	}
	a.due = t
	return true
}

// DueAt notes a time and makes the loop set its timer again.
func (a *Agenda) DueAt(t time.Time) {
	if a.Note(t) {
		wait.Signal(a.Changed)
	}
}

// LookAgain makes the loop look in 10 ms, 100 ms and 1 s.
func (a *Agenda) LookAgain(now time.Time) {
	a.mu.Lock()
	for i := range a.looks {
		l := &a.looks[i]
		l.asked = now
		if l.at.IsZero() {
			l.at = now.Add(delays[i])
		}
	}
	a.mu.Unlock()
	wait.Signal(a.Changed)
}

// Begin removes the times that are covered by the look that begins now.
func (a *Agenda) Begin(now time.Time) {
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
		if again := l.asked.Add(delays[i]); again.After(now) {
			l.at = again
		} else {
			*l = look{}
		}
	}
}

// Next is the duration until the earliest time on the agenda; [wait.Never] if the agenda is empty.
func (a *Agenda) Next(now time.Time) time.Duration {
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

package outbox

import (
	"fmt"
	"sync"
	"time"
)

// failures are the failures in a row of the kinds that have a [Breaker], as this process counts them.
// failures is safe for concurrent use.
type failures struct {
	pauses *pauses

	mu    sync.Mutex
	kinds map[EventKind]*failureRow
}

func newFailures(pauses *pauses) *failures {
	return &failures{pauses: pauses, kinds: map[EventKind]*failureRow{}}
}

// note counts the outcome of a delivery, and reports whether it paused the kind. Deliveries that began
// before a pause and end before the probe do not count, so that the workers that fail together make one pause.
func (f *failures) note(dl *delivery, b Breaker) (paused bool) {
	failed := dl.failed()
	if b.Failures == 0 || !failed && !dl.succeeded() {
		return false
	}
	kind := kindOf(dl.env)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !dl.probe && f.pauses.awaitProbe(kind) {
		return false
	}
	if !failed {
		delete(f.kinds, kind)
		return false
	}
	row := f.kinds[kind]
	if row == nil {
		row = &failureRow{}
		f.kinds[kind] = row
	}
	pause := row.failed(b, dl.probe)
	if pause > 0 {
		f.pauses.breakOff(kind, pause, row.reason(dl.probe, dl.reason))
	}
	return pause > 0
}

// failed reports whether a delivery failed in a way that counts as an attempt.
func (d *delivery) failed() bool {
	return (d.outcome == OutcomeRetry || d.outcome == OutcomeDead) && d.attempts > 0
}

// succeeded reports whether the listener is done.
func (d *delivery) succeeded() bool {
	return d.completed || (d.outcome == OutcomeDone || d.outcome == OutcomeDelete) && !d.expired
}

// failureRow is the failures in a row of a kind.
type failureRow struct {
	n     int
	pause time.Duration // the last pause; zero: none
}

// failed counts a failure, and returns how long the pause is that begins; zero: no pause. afterPause:
// the delivery was the first after a pause.
func (r *failureRow) failed(b Breaker, afterPause bool) (pause time.Duration) {
	if r.n++; r.n < b.Failures && !afterPause {
		return 0
	}
	first := defaultTo(b.Pause, defaultBreakerPause)
	if r.pause = min(2*r.pause, longestBreakerPause*first, maxPauseFor); r.pause == 0 {
		r.pause = first
	}
	return r.pause
}

// reason says why the pause begins, with the text of the last failure.
func (r *failureRow) reason(afterPause bool, last string) string {
	switch {
	case afterPause:
		return "the first delivery after a pause failed: " + last
	case r.n == 1:
		return "a delivery failed: " + last
	default:
		return fmt.Sprintf("%d deliveries in a row failed: %s", r.n, last)
	}
}

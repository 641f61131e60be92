package outbox

import "sync"

// failures are the failures in a row of the kinds that have a [Breaker], as this process counts them; [keys]
// has the failures of keys. failures is safe for concurrent use.
type failures struct {
	pauses *pauses
	keys   *keys

	mu    sync.Mutex
	kinds map[EventKind]*failureRow
}

func newFailures(pauses *pauses, keys *keys) *failures {
	return &failures{pauses: pauses, keys: keys, kinds: map[EventKind]*failureRow{}}
}

// note counts the outcome of a delivery, and reports whether it paused the kind or the key. Deliveries
// that began before a pause and end before the probe do not count, so that the workers that fail together
// make one pause.
func (f *failures) note(dl *delivery, b Breaker) (paused bool) {
	if b.Failures == 0 {
		return false
	}
	failed := dl.failed()
	if !failed && !dl.succeeded() {
		return false
	}
	if b.PerKey {
		until := f.keys.note(dl, b, failed)
		if dl.outcome == OutcomeRetry && until.After(dl.next) {
			dl.next = until // the event is the first after the pause
		}
		return !until.IsZero()
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

package outbox

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
)

// keys are what this process knows of single keys of a kind: which are paused, which fail, and which are
// at a bound. An event whose key may not be delivered now is deferred, with a write for each event,
// because there may be very many keys: no read of the table leaves out keys. The pauses of keys are shared
// with other processes by [pauses] (keypauses.go). keys is safe for concurrent use.
type keys struct {
	clock  Clock
	owner  string // of this process
	paused logburst.ByCause
	broken logburst.ByCause
	full   logburst.Burst

	some   atomic.Bool // there are states
	mu     sync.Mutex
	states map[keyOfKind]*keyState
	// A sweep drops the states that say nothing any more, when there are sweepAt, and at most once a
	// second.
	sweepAt   int
	lastSweep time.Time

	shared sharedKeys
}

// keyOfKind is an aggregate id within a kind of event. Other kinds of the same aggregate have other
// listeners, and so other receivers.
type keyOfKind struct {
	kind EventKind
	id   string
}

// keyState is the state of a key.
type keyState struct {
	touched time.Time // when the state was last changed, or the end of the pause
	// paused is the end of the pause; zero: no pause, or a probe ended it.
	paused time.Time
	reason string
	probe  *delivery // the first delivery after the pause, while it is under way
	began  time.Time // the probe
	row    failureRow
	limits keyLimits
}

// Limits of keys.
const (
	maxKeys    = 100_000 // keys that one process remembers
	keyMemory  = 10 * time.Minute
	firstSweep = 1_000
	// probeTime is how long the other events of a key wait, after a pause, for the event that paused it.
	probeTime = time.Second
)

func newKeys(log *slog.Logger, clock Clock, owner string) *keys {
	return &keys{
		clock: clock, owner: owner, states: map[keyOfKind]*keyState{}, sweepAt: firstSweep, shared: newSharedKeys(),
		paused: logburst.ByCause{Log: log, Level: slog.LevelWarn, Message: "outbox: a listener paused a key of its kind of event", Single: causeLines},
		broken: logburst.ByCause{Log: log, Level: slog.LevelWarn, Message: "outbox: failures in a row paused a key of their kind of event", Single: causeLines},
		full:   logburst.Burst{Log: log, Level: slog.LevelWarn, Message: "outbox: too many keys are paused, so only this process keeps to the pauses of further keys"},
	}
}

// keyOf is the key of an event; false when the event has no aggregate id.
func keyOf(env *Envelope) (keyOfKind, bool) {
	return keyOfKind{kindOf(env), env.AggregateID}, env.AggregateID != ""
}

// waits says whether an event has to wait because of the key; nil: the event need not wait.
func (k *keys) waits(dl *delivery, b keyBounds) *waiting {
	key, has := keyOf(dl.env)
	if !has || !k.some.Load() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waitOf(key, dl, b, k.clock.Now())
}

// begin notes that a delivery begins, unless the event has to wait.
func (k *keys) begin(dl *delivery, b keyBounds) *waiting {
	key, has := keyOf(dl.env)
	if !has {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	if w := k.waitOf(key, dl, b, now); w != nil {
		return w
	}
	s := k.states[key]
	if b != (keyBounds{}) {
		if s = k.state(key); s != nil {
			s.limits.begin(now, dl.env.AvailableAt, gridOf(key, b))
			dl.keyed = now
		}
	}
	if s != nil && !s.paused.IsZero() {
		s.probe, s.began = dl, now
	}
	return nil
}

func (k *keys) waitOf(key keyOfKind, dl *delivery, b keyBounds, now time.Time) *waiting {
	s := k.states[key]
	if s == nil {
		return nil
	}
	if w := s.pauseOf(now); w != nil {
		return w
	}
	if w := s.limits.concurrencyOf(now, b.concurrency); w != nil {
		return w
	}
	return s.limits.rateOf(now, dl.env.AvailableAt, gridOf(key, b))
}

// pauseOf says how long an event waits for the end of the pause, or for the probe after it. While the
// probe is under way, the waits double.
func (s *keyState) pauseOf(now time.Time) *waiting {
	switch {
	case s.paused.IsZero():
		return nil
	case s.paused.After(now):
		return &waiting{s.paused.Add(probeTime), "the key is paused: " + s.reason}
	case s.probe != nil:
		return &waiting{now.Add(max(now.Sub(s.began), probeTime)), "waits for the first delivery of the key after a pause"}
	default:
		return nil
	}
}

// end notes the end of a delivery that began. If the listener was not called after all, the next
// delivery is the probe.
func (k *keys) end(dl *delivery) {
	key, has := keyOf(dl.env)
	if !has || !k.some.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.states[key]
	if s == nil {
		return
	}
	if !dl.keyed.IsZero() {
		s.limits.end(k.clock.Now().Sub(dl.keyed))
	}
	if s.probe == dl {
		s.probe = nil
		if dl.outcome != OutcomeReleased {
			s.paused = time.Time{}
		}
	}
	k.settle(key, s)
}

// ask pauses the key of an event because the listener asks for a pause, and returns when the event is due
// again. A pause that ends about as late, or later, stays: of the deliveries that fail at once, the first
// makes the pause, and its event is the first after the pause. If the process remembers too many keys, the
// event waits alone.
func (k *keys) ask(dl *delivery, d time.Duration, reason string) (due time.Time) {
	now := k.clock.Now()
	key, has := keyOf(dl.env)
	if !has {
		return dueTime(now, d)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state(key)
	if s == nil {
		return dueTime(now, d)
	}
	if s.paused.Sub(now) > d-pausePace {
		return dueTime(s.paused, probeTime)
	}
	k.pause(key, s, d, reason, &k.paused)
	return s.paused
}

func (k *keys) pause(key keyOfKind, s *keyState, d time.Duration, reason string, lines *logburst.ByCause) {
	now := k.clock.Now()
	until := dueTime(now, d)
	k.replaced(key, s, now)
	s.pauseUntil(until, reason)
	k.share(Pause{
		Kind: key.kind, AggregateID: key.id, Since: storedTime(now), Until: until,
		Reason: singleLine(reason, MaxPauseReason), By: singleLine(k.owner, MaxPauseBy), Automatic: true,
	})
	lines.Add(key.kind.String(), logKeyEventType, string(key.kind.EventType), logKeyAggregateType, string(key.kind.AggregateType),
		logKeyAggregateID, key.id, logKeyUntil, until, logKeyReason, reason)
}

// pauseUntil makes a key wait until a time by the clock of this process.
func (s *keyState) pauseUntil(until time.Time, reason string) {
	s.probe = nil
	s.paused, s.touched, s.reason = until, until, reason
}

// note counts a delivery that failed or succeeded, as [failures.note] does for a kind, and returns the
// end of the pause that begins; zero: no pause begins.
func (k *keys) note(dl *delivery, b Breaker, failed bool) (until time.Time) {
	key, has := keyOf(dl.env)
	if !has || !failed && !k.some.Load() {
		return time.Time{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.states[key]
	switch {
	case s != nil && !s.paused.IsZero() && s.probe != dl: // the delivery began before the pause
		return time.Time{}
	case s != nil && !failed:
		s.row = failureRow{}
		k.settle(key, s)
		return time.Time{}
	case !failed:
		return time.Time{}
	}
	if s = k.state(key); s == nil {
		return time.Time{}
	}
	probe := s.probe == dl
	s.touched = k.clock.Now()
	if pause := s.row.failed(b, probe); pause > 0 {
		k.pause(key, s, pause, s.row.reason(probe, dl.reason), &k.broken)
		return s.paused
	}
	return time.Time{}
}

// state is the state of a key, which is made if the key is new; nil when there are too many keys.
func (k *keys) state(key keyOfKind) *keyState {
	if s := k.states[key]; s != nil {
		return s
	}
	if len(k.states) >= k.sweepAt {
		k.sweep()
	}
	if len(k.states) >= maxKeys {
		return nil
	}
	s := &keyState{}
	k.states[key] = s
	k.some.Store(true)
	return s
}

func (k *keys) sweep() {
	now := k.clock.Now()
	if now.Sub(k.lastSweep) < time.Second {
		return
	}
	k.lastSweep = now
	for key, s := range k.states {
		if s.isOver(now) {
			delete(k.states, key)
		}
	}
	k.sweepAt = min(max(2*len(k.states), firstSweep), maxKeys)
}

// settle drops a state that says nothing any more.
func (k *keys) settle(key keyOfKind, s *keyState) {
	if s.isOver(k.clock.Now()) {
		delete(k.states, key)
		k.some.Store(len(k.states) > 0)
	}
}

// isOver reports whether a state says nothing any more. A key that failed, or whose pause ended without
// a probe in this process, is forgotten after a while.
func (s *keyState) isOver(now time.Time) bool {
	if s.probe != nil || !s.limits.isOver(now) {
		return false
	}
	return s.row.n == 0 && s.paused.IsZero() || now.Sub(s.touched) > keyMemory
}

// flush writes the rest of the log lines.
func (k *keys) flush() {
	k.paused.Flush()
	k.broken.Flush()
	k.full.Flush()
}

// failureRow is the failures in a row of a kind or a key.
type failureRow struct {
	n     int
	pause time.Duration // the last pause; zero: no pause
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

package outbox

import (
	"hash/fnv"
	"time"
)

// Bounds of a key, see [Rules].KeyRate and [Rules].KeyConcurrency: an event over a bound is deferred to
// another slot. The slots of a key follow each other as the deliveries can, so an event that waits
// usually costs one write, however many wait.

// keyBounds are the bounds of each key of a kind in this process; zero: no bound.
type keyBounds struct {
	concurrency int
	rate        float64
	whole       float64 // the rate of all processes together, of which rate is a share
}

// keyLimits is what is known of a key that has bounds.
type keyLimits struct {
	running int           // deliveries under way
	since   time.Time     // when the last of them began
	took    time.Duration // how long a delivery takes on average
	ended   int           // the deliveries of that average
	busy    time.Time     // the last slot that [Rules].KeyConcurrency gave

	rateLine time.Time // the first slot that [Rules].KeyRate has not given
	served   time.Time // when the next delivery would begin if all had begun evenly
}

// Limits of the slots for [Rules].KeyConcurrency.
const (
	leastKeySlot  = 10 * time.Millisecond // between two slots, times the concurrency
	longestKeyIn  = 5 * time.Minute       // from now to a slot
	keyDeliveries = 32                    // deliveries that the average of a key's deliveries remembers
)

// concurrencyOf says how long an event waits while as many deliveries of the key are under way as may
// be. The slots are as far apart as deliveries end on average: a few deliveries that hang do not push a
// long line apart. While all deliveries hang, no slot begins before they have hung twice as long.
func (l *keyLimits) concurrencyOf(now time.Time, most int) *waiting {
	if most == 0 || l.running < most {
		return nil
	}
	if first := now.Add(now.Sub(l.since)); l.busy.Before(first) {
		l.busy = first
	}
	slot := max(l.took, leastKeySlot) / time.Duration(most)
	if l.busy = l.busy.Add(max(slot, time.Millisecond)); l.busy.Sub(now) > longestKeyIn {
		l.busy = now.Add(longestKeyIn)
	}
	return &waiting{l.busy, "waits for other deliveries of its key"}
}

// rateOf gives an event over the rate of the key the next free slot. Slots are times on the grid of the
// key, by which an event that comes back at its slot is known: it does not get in line again.
func (l *keyLimits) rateOf(now, due time.Time, g keyGrid) *waiting {
	if g.interval == 0 {
		return nil
	}
	comesBack := g.has(due)
	line, late := g.ahead, g.ahead
	if comesBack {
		late += g.every // events come back some time after their slots
	}
	if (comesBack || !l.rateLine.After(now.Add(line))) && !l.served.After(now.Add(late)) {
		return nil
	}
	if l.rateLine.Before(now) {
		l.rateLine = now
	}
	slot := g.next(l.rateLine)
	l.rateLine = l.rateLine.Add(g.every)
	return &waiting{slot, "waits for the rate of its key"}
}

// begin notes a delivery that begins.
func (l *keyLimits) begin(now, due time.Time, g keyGrid) {
	l.running++
	l.since = now
	if g.interval == 0 {
		return
	}
	if l.served.Before(now) {
		l.served = now
	}
	l.served = l.served.Add(g.every)
	if g.has(due) {
		return // the slot was the event's
	}
	if l.rateLine.Before(now) {
		l.rateLine = now
	}
	l.rateLine = l.rateLine.Add(g.every)
}

// end notes the end of a delivery that took this long.
func (l *keyLimits) end(took time.Duration) {
	l.running--
	l.ended = min(l.ended+1, keyDeliveries)
	l.took += (took - l.took) / time.Duration(l.ended)
}

// isOver reports whether the key is as if it had not been used.
func (l *keyLimits) isOver(now time.Time) bool {
	return l.running == 0 && !l.rateLine.After(now) && !l.served.After(now) && !l.busy.After(now)
}

// keyGrid are the slots of a key: all times that are as far from each other as the rate says. The grid
// is the same in all processes, and another for each key. A process with a share of the rate uses some of
// the slots: a grid of the share would change with the share, and no process would know the events again
// that come back at slots of another grid.
type keyGrid struct {
	interval time.Duration // whole microseconds, as databases store; zero: no rate
	offset   time.Duration
	every    time.Duration // between two deliveries of this process
	ahead    time.Duration // how far deliveries may be ahead of the rate: a tenth of a second's
}

// gridOf is the grid of a key; zero: no rate.
func gridOf(key keyOfKind, b keyBounds) keyGrid {
	if b.rate == 0 {
		return keyGrid{}
	}
	micros := microsOf(max(b.whole, b.rate))
	h := fnv.New64a()
	_, _ = h.Write([]byte(key.kind.String() + "\x00" + key.id))
	every := time.Duration(microsOf(b.rate)) * time.Microsecond
	return keyGrid{
		interval: time.Duration(micros) * time.Microsecond, offset: time.Duration(int64(h.Sum64()>>1)%micros) * time.Microsecond,
		every: every, ahead: time.Duration(max(1, int64(b.rate/10))-1) * every,
	}
}

// microsOf is the time between two deliveries at a rate a second, in microseconds.
func microsOf(rate float64) int64 { return int64(max(1, 1e6/rate+0.5)) }

// has reports whether a time is on the grid.
func (g keyGrid) has(t time.Time) bool { return g.interval > 0 && g.behind(t) == 0 }

// behind is how far a time is behind the last slot.
func (g keyGrid) behind(t time.Time) time.Duration {
	micros := g.interval.Microseconds()
	return time.Duration(((t.UnixMicro()-g.offset.Microseconds())%micros+micros)%micros) * time.Microsecond
}

// next is the first slot that is not before a time.
func (g keyGrid) next(t time.Time) time.Time {
	t = storedTime(t.Add(time.Microsecond - 1))
	if behind := g.behind(t); behind > 0 {
		t = t.Add(g.interval - behind)
	}
	return t
}

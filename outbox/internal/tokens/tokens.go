// Package tokens bounds a rate.
package tokens

import (
	"sync"
	"time"
)

// Bucket gets a token every interval, and keeps up to burst tokens. A Bucket is safe for concurrent
// use.
type Bucket struct {
	mu       sync.Mutex
	interval float64   // nanoseconds
	burst    int       // 0: there are no tokens
	next     time.Time // when burst tokens are there; before now: they are
}

// New makes a bucket that gets rate tokens a second, and is full.
func New(rate float64, burst int) *Bucket {
	return &Bucket{interval: float64(time.Second) / rate, burst: burst}
}

// maxAhead keeps times in range.
const maxAhead = 365 * 24 * float64(time.Hour)

// after is the time in which the bucket gets this many tokens.
func (t *Bucket) after(tokens float64) time.Duration {
	return time.Duration(min(t.interval*tokens, maxAhead))
}

// Take takes a token, or returns how long to wait for a token. A bucket with a burst of 0 has none.
func (t *Bucket) Take(now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.burst == 0 {
		return time.Duration(maxAhead)
	}
	if wait = t.next.Add(-t.after(float64(t.burst - 1))).Sub(now); wait > 0 {
		return wait
	}
	if t.next.Before(now) {
		t.next = now
	}
	t.next = t.next.Add(t.after(1))
	return 0
}

// Set changes the rate and the burst. The bucket keeps the tokens that it has, and gets more tokens,
// as far as the new burst has room for them.
func (t *Bucket) Set(now time.Time, rate float64, burst int, more float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	has := float64(t.burst)
	if missing := t.next.Sub(now); t.burst > 0 && missing > 0 {
		has = max(has-float64(missing)/t.interval, 0)
	}
	if t.burst = burst; burst == 0 {
		return
	}
	t.interval = float64(time.Second) / rate
	t.next = now.Add(t.after(float64(burst) - min(has+more, float64(burst))))
}

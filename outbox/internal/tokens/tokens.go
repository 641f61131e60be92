// Package tokens bounds a rate.
package tokens

import (
	"sync"
	"time"
)

// Bucket has a token every interval, and keeps up to burst of them. It is safe for concurrent
// use.
type Bucket struct {
	interval time.Duration
	ahead    time.Duration // of those that are kept, all but one

	mu   sync.Mutex
	next time.Time // when the next token is there, if none is kept
}

// New makes a bucket that gets rate tokens a second, and is full.
func New(rate float64, burst int) *Bucket {
	interval := float64(time.Second) / rate
	return &Bucket{interval: time.Duration(interval), ahead: time.Duration(min(interval*float64(burst-1), maxAhead))}
}

// maxAhead keeps times in range.
const maxAhead = 365 * 24 * float64(time.Hour)

// Take takes a token, or says how long it is until there is one.
func (t *Bucket) Take(now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait = t.next.Add(-t.ahead).Sub(now); wait > 0 {
		return wait
	}
	if t.next.Before(now) {
		t.next = now
	}
	t.next = t.next.Add(t.interval)
	return 0
}

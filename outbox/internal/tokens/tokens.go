// Package tokens bounds a rate.
package tokens

import (
	"sync"
	"time"
)

// Bucket gets a token every interval, and keeps up to burst tokens. A Bucket is safe for concurrent
// use.
type Bucket struct {
	interval time.Duration
	ahead    time.Duration // burst-1 intervals

	mu   sync.Mutex
	next time.Time // when the next token is there, if no token is kept
}

// New makes a bucket that gets rate tokens a second, and is full.
func New(rate float64, burst int) *Bucket {
	interval := float64(time.Second) / rate
	return &Bucket{interval: time.Duration(interval), ahead: time.Duration(min(interval*float64(burst-1), maxAhead))}
}

// maxAhead keeps times in range.
const maxAhead = 365 * 24 * float64(time.Hour)

// Take takes a token, or returns how long to wait for a token.
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

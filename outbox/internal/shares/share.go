package shares

import (
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/tokens"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// gate lets work begin, as far as the share of this process allows.
type gate struct {
	limits Limits

	mu      sync.Mutex
	parts   int       // that this process acts on
	held    int       // that the row gives to this process
	until   time.Time // the end of the share by this process's clock
	running int
	began   time.Time      // when work last began
	bucket  *tokens.Bucket // nil: no rate
	changed chan struct{}  // closed at the next change; nil: no goroutine waits for the change
}

// Begin begins a piece of work, whose end is to be said with End, or says how long to wait at least.
// A change of Changed may make room earlier.
func (g *gate) Begin() (retry time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	switch {
	case g.parts == 0 || !now.Before(g.until):
		return wait.Never, false
	case g.limits.Concurrency > 0 && g.running >= g.limits.Of(g.parts).Concurrency:
		return wait.Never, false
	case g.parts < g.held && g.limits.holding(g.running+1) > g.parts: // else no part would ever be free
		return wait.Never, false
	}
	if g.bucket != nil {
		if retry = g.bucket.Take(now); retry > 0 {
			return retry, false
		}
	}
	g.running++
	g.began = now
	return 0, true
}

// End ends a piece of work.
func (g *gate) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.tell()
}

// Changed is closed when work ends, or when the share changes.
func (g *gate) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

// tell wakes the goroutines that wait; mu is held.
func (g *gate) tell() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Limits are the limits of all processes together.
func (g *gate) Limits() Limits { return g.limits }

// Parts is how many parts this process acts on: Limits.Of has its limits.
func (g *gate) Parts() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.parts
}

// lower lets the process act on so many parts at most from now on, and returns how many pieces of
// work run.
func (g *gate) lower(parts int) (running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if parts < g.parts {
		g.set(parts, 0)
	}
	return g.running
}

// renew lets the process act on parts of the share that it holds, until a time.
func (g *gate) renew(parts, held int, more float64, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held, g.until = held, until
	if parts != g.parts || more > 0 {
		g.set(parts, more)
	}
	g.tell()
}

// set changes the parts; mu is held.
func (g *gate) set(parts int, more float64) {
	g.parts = parts
	if own := g.limits.Of(parts); g.bucket != nil {
		g.bucket.Set(time.Now(), own.Rate, own.Burst, more)
	}
	g.tell()
}

// isRecent reports whether work began less than d ago.
func (g *gate) isRecent(d time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.began.IsZero() && time.Since(g.began) < d
}

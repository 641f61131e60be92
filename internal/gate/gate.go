// Package gate bounds how many requests of operators use the database at once, so that pages leave
// connections of the pool to the service.
package gate

import (
	"context"
	"time"
)

// Gate lets a number of requests in at once. The others wait. A nil Gate lets all in.
type Gate struct {
	places chan struct{}
	wait   time.Duration
}

// New makes a gate with a number of places, for which a request waits for a limited time.
func New(places int, wait time.Duration) *Gate {
	return &Gate{make(chan struct{}, places), wait}
}

// Enter waits for a place, and returns a function that gives the place back; the function may be called
// more than once. Enter returns nil if no place became free in time, or before ctx ended.
func (g *Gate) Enter(ctx context.Context) (leave func()) {
	if g == nil {
		return func() {}
	}
	select {
	case g.places <- struct{}{}:
		return g.leave()
	default:
	}
	patience := time.NewTimer(g.wait)
	defer patience.Stop()
	select {
	case g.places <- struct{}{}:
		return g.leave()
	case <-patience.C:
	case <-ctx.Done():
	}
	return nil
}

func (g *Gate) leave() func() {
	held := true
	return func() {
		if held {
			held = false
			<-g.places
		}
	}
}

// Package wait has the few ways in which goroutines of the outbox wait.
package wait

import (
	"context"
	"time"
)

const (
	// Never is a duration for a timer that is not to fire: 292 years.
	Never = time.Duration(1<<63 - 1)
	// Grace is how long a close waits for a goroutine that has to end when the caller's
	// time is up already. Ending takes a moment all the same.
	Grace = time.Second
)

// Sleep waits for d or until the end of ctx.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// For waits until done is closed, and reports false when ctx or the limit ends first. A channel
// that is closed by then counts as closed, whatever else has ended.
func For(ctx context.Context, done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Signal puts a token into a channel with room for one token, if the channel is empty.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

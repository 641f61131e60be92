// Package loop runs the single goroutine of a part that is started and closed.
package loop

import (
	"context"
	"fmt"
	"sync"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Loop owns a goroutine, and is safe for concurrent use.
type Loop struct {
	body   func(ctx context.Context)
	after  error           // of Start after Close
	ctx    context.Context // of the body; the context ends when the loop is closed
	cancel context.CancelFunc
	done   chan struct{}

	mu              sync.Mutex
	started, closed bool
}

// New makes a loop. The goroutine runs body, which returns soon after its context has ended. closed
// is the error of Start after Close.
func New(body func(ctx context.Context), closed error) *Loop {
	l := &Loop{body: body, after: closed, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start starts the goroutine. ctx bounds only the start. Starting twice is harmless.
func (l *Loop) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return l.after
	case l.started:
		return nil
	}
	l.started = true
	go func() {
		defer close(l.done)
		l.body(l.ctx)
	}()
	return nil
}

// Cancel ends the body's context; Close waits for the end of the goroutine.
func (l *Loop) Cancel() { l.cancel() }

// Close ends the body's context and waits until the goroutine has ended, or until ctx has
// ended and the grace of package wait is over too.
func (l *Loop) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	runs := l.started
	l.mu.Unlock()
	l.cancel()
	if !runs {
		return nil
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	if wait.For(context.Background(), l.done, wait.Grace) {
		return nil
	}
	return fmt.Errorf("it has not ended yet: %w", ctx.Err())
}

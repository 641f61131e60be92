package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// statementTimeout ends a statement of a loop that the database does not answer:
// it fails, is logged and tried again, instead of holding up the loop for ever.
const statementTimeout = 30 * time.Second

// loop owns the one goroutine of a poller or a purger.
type loop struct {
	mu     sync.Mutex
	state  lifecycle
	body   func(ctx context.Context)
	ctx    context.Context // of the body; it ends when the loop is closed
	cancel context.CancelFunc
	done   chan struct{}
}

func (l *loop) init(body func(ctx context.Context)) {
	l.body = body
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.done = make(chan struct{})
}

func (l *loop) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case running:
		return nil
	case stopped:
		return ErrClosed
	case created:
	}
	l.state = running
	go func() {
		defer close(l.done)
		l.body(l.ctx)
	}()
	return nil
}

// close ends the body's context and waits until the body has ended, or until ctx
// has ended and the grace is over too.
func (l *loop) close(ctx context.Context) error {
	l.mu.Lock()
	was := l.state
	l.state = stopped
	if was == created {
		close(l.done)
	}
	l.mu.Unlock()
	l.cancel()
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

package idempotency

import (
	"context"
	"sync"
)

// maxWaiting is how many requests of a process may wait for a running request with the same key.
const maxWaiting = 32

// turns lets the requests of this process with the same key in one after the other, so that a request
// that waits holds no connection.
type turns struct {
	mu   sync.Mutex
	open map[[32]byte]*turn
}

type turn struct {
	free chan struct{} // holds a token while a request has the turn
	all  int           // requests that have the turn, or wait
}

// take waits for the turn; leave gives it up.
func (t *turns) take(ctx context.Context, hash [32]byte) (leave func(), err error) {
	t.mu.Lock()
	own := t.open[hash]
	if own == nil {
		own = &turn{free: make(chan struct{}, 1)}
		t.open[hash] = own
	}
	if own.all > maxWaiting {
		t.mu.Unlock()
		return nil, ErrRunning
	}
	own.all++
	t.mu.Unlock()
	select {
	case own.free <- struct{}{}:
		return sync.OnceFunc(func() {
			<-own.free
			t.end(hash, own)
		}), nil
	case <-ctx.Done():
		t.end(hash, own)
		return nil, ctx.Err()
	}
}

func (t *turns) end(hash [32]byte, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.all--; own.all == 0 {
		delete(t.open, hash)
	}
}

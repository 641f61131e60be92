package sqltx

import (
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

// callbackQueue runs the callbacks of one transaction in order, on a goroutine
// that lives as long as there are any. A callback that ran in the driver's
// COMMIT, or in its ROLLBACK TO, could not use the transaction's connection, and
// would wait forever for another one of a pool that has one.
type callbackQueue struct {
	mu      sync.Mutex
	log     *slog.Logger // nil: slog.Default()
	waiting []func()
	running bool
}

// logTo sets who is told of panics.
func (q *callbackQueue) logTo(log *slog.Logger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if log != nil {
		q.log = log
	}
}

func (q *callbackQueue) add(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, fn)
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *callbackQueue) run() {
	finished := false
	defer func() {
		if !finished { // a callback ended the goroutine
			go q.run()
		}
	}()
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.waiting, q.running = nil, false
			q.mu.Unlock()
			finished = true
			return
		}
		fn := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		q.shield(fn)
	}
}

// shield keeps the panic of one callback from the others.
func (q *callbackQueue) shield(fn func()) {
	defer func() {
		if r := recover(); r != nil {
			q.mu.Lock()
			log := q.log
			q.mu.Unlock()
			if log == nil {
				log = slog.Default()
			}
			log.Error("outbox: a transaction callback panicked", "error", (&outbox.PanicError{Value: r}).Error(), "stack", string(debug.Stack()))
		}
	}()
	fn()
}

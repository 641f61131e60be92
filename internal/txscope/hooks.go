package txscope

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

// Hooks is the callbacks of one transaction and the savepoints among them, in
// the order in which they came. The zero value is ready and logs to
// slog.Default(). It is safe for concurrent use; callbacks run outside its lock.
type Hooks struct {
	// Logger is told of callbacks that panic. Set it before the first call.
	Logger *slog.Logger

	mu      sync.Mutex
	entries []entry
	held    int  // callbacks among the entries
	used    bool // there was one
	ended   bool
}

// entry is a callback, or a savepoint when both functions are nil.
type entry struct {
	commit   func(ctx context.Context)
	rollback func(ctx context.Context, cause error)
	name     string // of the savepoint
	// doubtful: a savepoint nobody told us about was rolled back, and the
	// callback may have been registered under it.
	doubtful bool
}

func (e *entry) isSavepoint() bool { return e.commit == nil && e.rollback == nil }

// AfterCommit registers fn to run when the transaction commits. It fails with
// [outbox.ErrNoTransaction] after [Hooks.Finish].
func (h *Hooks) AfterCommit(fn func(ctx context.Context)) error {
	if fn == nil {
		return nil
	}
	return h.add(entry{commit: fn})
}

// AfterRollback registers fn to run when the transaction, or the savepoint that
// it is under now, is rolled back. It fails with [outbox.ErrNoTransaction] after
// [Hooks.Finish].
func (h *Hooks) AfterRollback(fn func(ctx context.Context, cause error)) error {
	if fn == nil {
		return nil
	}
	return h.add(entry{rollback: fn})
}

func (h *Hooks) add(e entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return fmt.Errorf("%w: it has ended", outbox.ErrNoTransaction)
	}
	h.entries = append(h.entries, e)
	h.held++
	h.used = true
	return nil
}

// Used reports whether any callback was ever registered.
func (h *Hooks) Used() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.used
}

// Held reports whether any callback is waiting.
func (h *Hooks) Held() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held > 0
}

// Savepoint notes a savepoint. One of a name that exists already hides the
// older one until it is released.
func (h *Hooks) Savepoint(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		// Cloned, for the name is mostly a piece of a statement that need not
		// live as long as the transaction.
		h.entries = append(h.entries, entry{name: strings.Clone(name)})
	}
}

// Release forgets the newest savepoint of that name and those after it; what
// was registered under them now belongs to what is around them.
func (h *Hooks) Release(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	from := h.find(name)
	if from < 0 {
		// It was made unseen. Which of the savepoints that we know came after it
		// and went with it cannot be told, so none of them is a safe place to
		// cut at: from now on a rollback to one counts as unseen.
		from = 0
	}
	kept := h.entries[:from]
	for i := from; i < len(h.entries); i++ {
		if !h.entries[i].isSavepoint() {
			kept = append(kept, h.entries[i])
		}
	}
	clear(h.entries[len(kept):])
	h.entries = kept
}

// RollbackTo undoes everything since the newest savepoint of that name, which
// stays: after-commit callbacks since then are dropped and after-rollback
// callbacks run before it returns. A name that was never seen leaves it open
// what was undone: everything registered so far becomes of unknown outcome,
// unless the whole transaction is rolled back.
func (h *Hooks) RollbackTo(ctx context.Context, name string) {
	h.each(h.cut(name), func(e *entry) {
		if e.rollback != nil {
			h.shield("after rollback", func() { e.rollback(ctx, nil) })
		}
	})
}

// each calls fn for the entries in order, and goes on when one of them ends its
// goroutine.
func (h *Hooks) each(entries []entry, fn func(e *entry)) {
	next := 0
	var run func()
	run = func() {
		defer func() {
			if next < len(entries) {
				run()
			}
		}()
		for next < len(entries) {
			next++
			fn(&entries[next-1])
		}
	}
	run()
}

func (h *Hooks) cut(name string) []entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil
	}
	at := h.find(name)
	if at < 0 {
		h.doubt(0)
		return nil
	}
	undone := slices.Clone(h.entries[at+1:])
	clear(h.entries[at+1:])
	h.entries = h.entries[:at+1]
	for i := range undone {
		if !undone[i].isSavepoint() {
			h.held--
		}
	}
	return undone
}

// Doubt makes what was registered since the newest savepoint of that name of
// unknown outcome, as a rollback to it does that may have happened or not.
func (h *Hooks) Doubt(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt(h.find(name) + 1)
}

func (h *Hooks) doubt(from int) {
	for i := from; i < len(h.entries); i++ {
		h.entries[i].doubtful = true
	}
}

// find is the index of the newest savepoint of that name, or -1.
func (h *Hooks) find(name string) int {
	for i := len(h.entries) - 1; i >= 0; i-- {
		if h.entries[i].isSavepoint() && h.entries[i].name == name {
			return i
		}
	}
	return -1
}

// Finish ends the transaction and runs its callbacks, in the order in which
// they were registered: the after-commit ones when it committed, else the
// after-rollback ones with the cause, which is made one of
// [outbox.ErrOutcomeUnknown] when the outcome is [Unknown]. Only the first call
// does anything; it returns when the callbacks have.
func (h *Hooks) Finish(ctx context.Context, outcome Outcome, cause error) {
	h.mu.Lock()
	entries := h.entries
	h.entries, h.held, h.ended = nil, 0, true
	h.mu.Unlock()
	if outcome == Unknown && len(entries) > 0 {
		cause = unknownCause(cause)
	}
	h.each(entries, func(e *entry) {
		switch {
		case outcome != Committed:
			if e.rollback != nil {
				h.shield("after rollback", func() { e.rollback(ctx, cause) })
			}
		case e.doubtful:
			if e.rollback != nil {
				h.shield("after rollback", func() { e.rollback(ctx, unknownCause(nil)) })
			}
		case e.commit != nil:
			h.shield("after commit", func() { e.commit(ctx) })
		}
	})
}

// shield keeps the panic of one callback from the others and from the caller.
func (h *Hooks) shield(what string, fn func()) {
	defer func() {
		if r := recover(); r != nil {
			log := h.Logger
			if log == nil {
				log = slog.Default()
			}
			log.Error("outbox: a transaction callback panicked",
				"callback", what, "error", (&outbox.PanicError{Value: r}).Error(), "stack", string(debug.Stack()))
		}
	}()
	fn()
}

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

// Callback is a function that runs after the end of a transaction or the
// rollback of a savepoint.
type Callback func(ctx context.Context)

// Hooks is the list of functions that were registered in a transaction and of the savepoints among
// them, in order. The zero value is ready to use. Hooks is safe for concurrent use.
type Hooks struct {
	mu      sync.Mutex
	entries []entry
	room    [2]entry // the entries of one write need no allocation
	held    int      // registered functions among the entries
	ended   bool
}

// entry is a registered function, or a savepoint when it has no function.
type entry struct {
	atCommit      func()
	afterCommit   Callback
	afterRollback func(ctx context.Context, cause error)
	savepoint     string
	// doubtful: a rollback to an unknown savepoint may have undone the write for which the function
	// was registered.
	doubtful bool
	// unclear: an unclear statement may have undone this write, or committed it.
	unclear bool
}

func (e *entry) isSavepoint() bool {
	return e.atCommit == nil && e.afterCommit == nil && e.afterRollback == nil
}

// AtCommit registers fn to run within [Hooks.Finish] when the transaction committed. After Finish,
// AtCommit, AfterCommit and AfterRollback fail with [outbox.ErrNoTransaction].
func (h *Hooks) AtCommit(fn func()) error { return h.add(entry{atCommit: fn}) }

// AfterCommit registers fn to run after the transaction has committed.
func (h *Hooks) AfterCommit(fn func(ctx context.Context)) error {
	return h.add(entry{afterCommit: fn})
}

// AfterRollback registers fn to run after the transaction, or the savepoint that
// is open now, was rolled back.
func (h *Hooks) AfterRollback(fn func(ctx context.Context, cause error)) error {
	return h.add(entry{afterRollback: fn})
}

func (h *Hooks) add(e entry) error {
	if e.isSavepoint() {
		return nil // the function is nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return fmt.Errorf("%w: it has ended", outbox.ErrNoTransaction)
	}
	if h.entries == nil {
		h.entries = h.room[:0]
	}
	h.entries = append(h.entries, e)
	h.held++
	return nil
}

// Held reports whether a registered function waits for the end of the
// transaction.
func (h *Hooks) Held() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held > 0
}

// Savepoint adds a savepoint, which hides an older savepoint of the same name until it is released.
func (h *Hooks) Savepoint(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		// Cloned: the name is usually part of a statement that need not live as
		// long as the transaction.
		h.entries = append(h.entries, entry{savepoint: strings.Clone(name)})
	}
}

// Release removes the newest savepoint of that name and the savepoints after it. Functions that
// were registered under these savepoints now belong to the level around them.
func (h *Hooks) Release(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	// If the tap did not see a savepoint of this name, the known savepoints may have been released
	// with it. All savepoints are removed, so that a later rollback to a known savepoint counts as
	// a rollback to an unknown savepoint.
	h.removeSavepoints(max(h.find(name), 0))
}

func (h *Hooks) removeSavepoints(from int) {
	kept := h.entries[:from]
	for i := from; i < len(h.entries); i++ {
		if !h.entries[i].isSavepoint() {
			kept = append(kept, h.entries[i])
		}
	}
	clear(h.entries[len(kept):])
	h.entries = kept
}

// RollbackTo removes everything that was registered since the newest savepoint of that name, which
// stays, and returns the removed after-rollback callbacks. A rollback to an unknown savepoint may
// have undone anything: everything registered so far then has an unknown end, unless the whole
// transaction is rolled back.
func (h *Hooks) RollbackTo(name string) []Callback {
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
	var undone []Callback
	for i := at + 1; i < len(h.entries); i++ {
		e := &h.entries[i]
		if !e.isSavepoint() {
			h.held--
		}
		if fn := e.afterRollback; fn != nil {
			undone = append(undone, func(ctx context.Context) { fn(ctx, nil) })
		}
	}
	clear(h.entries[at+1:])
	h.entries = h.entries[:at+1]
	return undone
}

// Doubt gives everything that was registered since the newest savepoint of that name an unknown
// end: a rollback to the savepoint may have happened or not.
func (h *Hooks) Doubt(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt(h.find(name) + 1)
}

// Unclear gives everything that was registered an unknown end, and forgets the
// savepoints, because a statement may have done anything to the transaction.
func (h *Hooks) Unclear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeSavepoints(0)
	for i := range h.entries {
		h.entries[i].unclear = true
	}
}

func (h *Hooks) doubt(from int) {
	for i := from; i < len(h.entries); i++ {
		h.entries[i].doubtful = true
	}
}

// find is the index of the newest savepoint of that name, or -1.
func (h *Hooks) find(name string) int {
	for i, e := range slices.Backward(h.entries) {
		if e.isSavepoint() && e.savepoint == name {
			return i
		}
	}
	return -1
}

// Finish ends the transaction, runs the AtCommit functions when the transaction committed, and
// returns the callbacks that are to run afterwards, in the order of registration: the after-commit
// callbacks, or the after-rollback callbacks, whose cause is [outbox.ErrOutcomeUnknown] when the
// end is [Unknown]. Only the first call does anything.
func (h *Hooks) Finish(end End, cause error) (after []Callback) {
	h.mu.Lock()
	entries := h.entries
	h.entries, h.held, h.ended = nil, 0, true
	h.mu.Unlock()
	if end == Unknown && len(entries) > 0 {
		cause = unknownCause(cause)
	}
	for i := range entries {
		e := &entries[i]
		unknown := e.unclear || e.doubtful && end == Committed
		committed := end == Committed && !unknown
		switch {
		case committed && e.atCommit != nil:
			shield(e.atCommit)
		case committed && e.afterCommit != nil:
			after = append(after, e.afterCommit)
		case !committed && e.afterRollback != nil:
			fn, why := e.afterRollback, cause
			if unknown {
				why = unknownCause(cause)
			}
			after = append(after, func(ctx context.Context) { fn(ctx, why) })
		}
	}
	return after
}

// Run runs callbacks in order. A panic of a callback does not reach the other callbacks, nor the
// caller.
func Run(ctx context.Context, callbacks []Callback) {
	for _, fn := range callbacks {
		shield(func() { fn(ctx) })
	}
}

// shield logs a panic of fn.
func shield(fn func()) {
	defer func() {
		if r := recover(); r != nil {
			slog.Default().Error("outbox: a transaction callback panicked",
				"error", (&outbox.PanicError{Value: r}).Error(), "stack", string(debug.Stack()))
		}
	}()
	fn()
}

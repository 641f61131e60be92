package outbox

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
)

// WriterHook takes part in every write of a [Writer]. A nil func is skipped.
// Hooks run in the order given, on the goroutine that writes, commits or rolls
// back. The envelopes are sealed and each hook's own copies; apart from what
// BeforeWrite returns, changes to them have no effect.
type WriterHook struct {
	// BeforeWrite may change or filter the envelopes; what it returns is
	// checked again. None left: the write is suppressed, without an error. An
	// error aborts the write with nothing inserted.
	BeforeWrite func(ctx context.Context, envs []Envelope) ([]Envelope, error)
	// AfterWrite runs when the rows are inserted and the transaction is still
	// open. A panic is logged and swallowed, as in the two below.
	AfterWrite func(ctx context.Context, envs []Envelope)
	// AfterCommit runs once the transaction is known to have committed. Its
	// context does not end with the transaction's.
	AfterCommit func(ctx context.Context, envs []Envelope)
	// AfterRollback runs when the transaction or its savepoint was rolled back.
	// The cause is nil, the error that led to it, or one that is
	// [ErrOutcomeUnknown]. For a savepoint it runs at once, while the transaction
	// goes on and keeps its connection: a hook that then uses the database needs
	// another one, and waits forever for it when the pool has no more.
	AfterRollback func(ctx context.Context, envs []Envelope, cause error)
}

func (w *Writer) afterWrite(ctx context.Context, envs []Envelope) {
	for _, h := range w.hooks {
		if h.AfterWrite != nil {
			w.shield("AfterWrite", func() { h.AfterWrite(ctx, cloneAll(envs)) })
		}
	}
}

// cloneAll are envelopes that a hook may change.
func cloneAll(envs []Envelope) []Envelope {
	own := slices.Clone(envs)
	for i := range own {
		own[i].Headers = maps.Clone(own[i].Headers)
	}
	return own
}

// shield runs a hook that cannot fail the caller.
func (w *Writer) shield(what string, fn func()) {
	defer func() {
		if r := recover(); r != nil {
			w.log.Error("outbox: a writer hook panicked", logKeyError, fmt.Sprint(r), logKeyHook, what, logKeyStack, string(debug.Stack()))
		}
	}()
	fn()
}

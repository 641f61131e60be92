package outbox

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
)

// WriterHook takes part in every write of a [Writer]. A nil func is skipped.
// Hooks run in the order given. BeforeWrite and AfterWrite run on the goroutine
// that writes. AfterCommit and AfterRollback run when the transaction no longer
// holds its connection: before the adapter's RunInTx, Commit or Rollback returns,
// or soon after other code has ended the transaction. Each hook gets a separate copy
// of the sealed envelopes: changes have no effect, except to the envelopes that
// BeforeWrite returns.
type WriterHook struct {
	// BeforeWrite may change or filter the envelopes; the returned envelopes are
	// checked again. If no envelopes are left, the write is suppressed, without an
	// error. An error aborts the write with nothing inserted.
	BeforeWrite func(ctx context.Context, envs []Envelope) ([]Envelope, error)
	// AfterWrite runs when the rows are inserted and the transaction is still
	// open. A panic is logged and ignored, as in AfterCommit and AfterRollback.
	AfterWrite func(ctx context.Context, envs []Envelope)
	// AfterCommit runs once the transaction is known to have committed. The
	// context does not end with the transaction's context.
	AfterCommit func(ctx context.Context, envs []Envelope)
	// AfterRollback runs when the transaction or its savepoint was rolled back.
	// The cause is nil, the error that led to the rollback, or an error that is
	// [ErrOutcomeUnknown]. For a savepoint, AfterRollback runs soon after the
	// savepoint's rollback, while the transaction goes on.
	AfterRollback func(ctx context.Context, envs []Envelope, cause error)
}

func (w *Writer) afterWrite(ctx context.Context, envs []Envelope) {
	for _, h := range w.hooks {
		if h.AfterWrite != nil {
			w.shield("AfterWrite", func() { h.AfterWrite(ctx, cloneAll(envs)) })
		}
	}
}

// copies has the envelopes for each hook with AfterCommit.
func (w *Writer) copies(envs []Envelope) (copies [][]Envelope) {
	for _, h := range w.hooks {
		if h.AfterCommit != nil {
			copies = append(copies, cloneAll(envs))
		}
	}
	return copies
}

func (w *Writer) afterCommit(ctx context.Context, copies [][]Envelope) {
	for _, h := range w.hooks {
		if h.AfterCommit != nil {
			own := copies[0]
			copies = copies[1:]
			w.shield("AfterCommit", func() { h.AfterCommit(ctx, own) })
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

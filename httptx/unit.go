package httptx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

// unit is a request's transaction. A goroutine may outlive the handler that started it; the
// goroutine then finds the unit ended.
type unit struct {
	tx        outbox.Transaction
	ctx       context.Context // of the request, without the transaction
	framework Framework

	mu        sync.Mutex
	ended     bool
	callbacks []func(ctx context.Context)
}

// end marks the unit as ended and returns the callbacks. Only the first call returns true.
func (u *unit) end() ([]func(ctx context.Context), bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := !u.ended
	u.ended = true
	return u.callbacks, first
}

// commit commits, unless the client has gone, and then runs the callbacks.
func (u *unit) commit() error {
	callbacks, first := u.end()
	if !first {
		return nil
	}
	if u.ctx.Err() != nil {
		u.undo()
		return &CommitError{Err: context.Cause(u.ctx)}
	}
	if err := u.tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrOutcomeUnknown) {
			err = fmt.Errorf("%w: the handler ended the transaction; leave Commit and Rollback to the middleware: %w", outbox.ErrOutcomeUnknown, err)
		}
		return &CommitError{Err: err}
	}
	for _, fn := range callbacks {
		u.run(fn)
	}
	return nil
}

// rollback rolls back, once. An error is only logged: a transaction whose connection broke is
// rolled back too.
func (u *unit) rollback() {
	if _, first := u.end(); first {
		u.undo()
	}
}

func (u *unit) undo() {
	if err := u.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		u.framework.Logger().WarnContext(u.ctx, "rolling the request's transaction back failed", "error", err)
	}
}

func (u *unit) run(callback func(ctx context.Context)) {
	defer func() {
		if r := recover(); r != nil {
			u.framework.Logger().ErrorContext(u.ctx, "an OnCommit callback panicked", "error", &outbox.PanicError{Value: r}, "stack", string(debug.Stack()))
		}
	}()
	callback(context.WithoutCancel(u.ctx))
}

// OnCommit runs fn after the transaction of the request has committed and before the response is
// sent. fn does not run when the transaction was rolled back or its outcome is unknown. fn gets the
// request's context without the cancellation and without the transaction; a panic of fn is logged.
//
// ctx is the request's. OnCommit fails with [outbox.ErrNoTransaction] when ctx has no transaction
// of the middleware, or the transaction has ended. A callback belongs to the whole transaction,
// also when it was registered under a savepoint. With middlewares for two transactors, a callback
// belongs to the outer transaction, which commits last.
func OnCommit(ctx context.Context, fn func(ctx context.Context)) error {
	if fn == nil {
		return &outbox.FieldError{Field: "OnCommit fn", Problem: "is nil"}
	}
	x := exchangeOf(ctx)
	if x == nil {
		return fmt.Errorf("%w: the request has none; mount the Transaction middleware, and take the method out of its ReadOnlyMethods", outbox.ErrNoTransaction)
	}
	for x.outer != nil {
		x = x.outer
	}
	u := &x.unit
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return fmt.Errorf("%w: the request's transaction has ended", outbox.ErrNoTransaction)
	}
	u.callbacks = append(u.callbacks, fn)
	return nil
}

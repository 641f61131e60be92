package httptx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// decision is how the code of a request wants its transaction to end.
type decision int

const (
	undecided decision = iota
	toCommit
	toRollBack
)

var errNone = fmt.Errorf("%w: the request has none; mount the Transaction middleware, and take the method out of its ReadOnlyMethods", outbox.ErrNoTransaction)

// unit is a request's transaction. A goroutine may outlive the handler that started it; the
// goroutine then finds the unit ended.
type unit struct {
	tx        outbox.Transaction
	ctx       context.Context // of the request, without the transaction
	within    context.Context // with the transaction
	framework Framework

	mu        sync.Mutex
	ended     bool
	decision  decision
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
	txretry.Committed(u.ctx, u.within)
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
	a := attemptOf(ctx)
	if a == nil {
		return errNone
	}
	for a.outer != nil {
		a = a.outer
	}
	return a.unit.change(func(u *unit) { u.callbacks = append(u.callbacks, fn) })
}

// change changes a unit that has not ended.
func (u *unit) change(fn func(u *unit)) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return fmt.Errorf("%w: the request's transaction has ended", outbox.ErrNoTransaction)
	}
	fn(u)
	return nil
}

func (u *unit) decided() decision {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.decision
}

// Rollback makes the request's transaction roll back when the response is complete, whatever the status
// of the response is. It is for protocols that answer an error with the status 200, such as GraphQL and
// JSON-RPC. The handler goes on in the transaction, and its response is sent.
//
// ctx is the request's. Of several calls of Rollback and [Commit] the last one holds. With middlewares
// for two transactors, both transactions roll back. Rollback fails with [outbox.ErrNoTransaction] when
// ctx has no transaction of the middleware, or the transaction has ended.
func Rollback(ctx context.Context) error { return decide(ctx, toRollBack) }

// Commit makes the request's transaction commit when the response is complete, whatever the status of
// the response is, as for an answer 409 whose cause is stored. A panic, an error of the database and the
// end of the request's context still roll back. The rest is as for [Rollback].
func Commit(ctx context.Context) error { return decide(ctx, toCommit) }

func decide(ctx context.Context, how decision) error {
	a := attemptOf(ctx)
	if a == nil {
		return errNone
	}
	for ; a != nil; a = a.outer {
		if err := a.unit.change(func(u *unit) { u.decision = how }); err != nil {
			return err
		}
	}
	return nil
}

// Failed reports whether a response says that its request failed: by a status of 400 or more, or by a
// grpc-status other than 0 among its headers and trailers, as of gRPC and gRPC-Web, whose status is 200.
// grpc-go sets the grpc-status of [grpc.Server.ServeHTTP] after it flushed the response, which is too
// late: use package grpctx there.
//
// [grpc.Server.ServeHTTP]: https://pkg.go.dev/google.golang.org/grpc#Server.ServeHTTP
func Failed(status int, header http.Header) bool {
	if status >= http.StatusBadRequest {
		return true
	}
	for _, name := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if code := header.Get(name); code != "" && code != "0" {
			return true
		}
	}
	return false
}

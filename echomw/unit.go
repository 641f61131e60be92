package echomw

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// unit is a request's transaction. A goroutine of the handler may outlive the
// handler, under a timeout: it then finds the unit ended.
type unit struct {
	tx  outbox.Transaction
	ctx context.Context // of the request, without the transaction
	log echo.Logger

	mu        sync.Mutex
	ended     bool
	callbacks []func(ctx context.Context)
}

// end says that nothing can be added any more, and returns what was. It is true
// for the first call.
func (u *unit) end() ([]func(ctx context.Context), bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := !u.ended
	u.ended = true
	return u.callbacks, first
}

// commit commits, unless the client is gone, and then runs the callbacks.
func (u *unit) commit() error {
	callbacks, first := u.end()
	if !first {
		return nil
	}
	if err := u.ctx.Err(); err != nil {
		u.undo()
		return &CommitError{Err: context.Cause(u.ctx)}
	}
	if err := u.tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrOutcomeUnknown) {
			err = fmt.Errorf("%w: something ended the transaction before; leave Commit and Rollback to the middleware: %w", outbox.ErrOutcomeUnknown, err)
		}
		return &CommitError{Err: err}
	}
	if len(callbacks) > 0 {
		ctx := context.WithoutCancel(u.ctx)
		for _, fn := range callbacks {
			u.shield(func() { fn(ctx) })
		}
	}
	return nil
}

// rollback rolls back. An error of it is logged: the request has its own
// outcome, and a transaction whose connection broke is rolled back, too.
func (u *unit) rollback() {
	if _, first := u.end(); first {
		u.undo()
	}
}

func (u *unit) undo() {
	if err := u.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		u.log.Warnf("echomw: rolling the request's transaction back: %v", err)
	}
}

func (u *unit) shield(fn func()) {
	defer func() {
		if r := recover(); r != nil {
			u.log.Errorf("echomw: in an OnCommit callback: %v\n%s", &outbox.PanicError{Value: r}, debug.Stack())
		}
	}()
	fn()
}

func (u *unit) onCommit(fn func(ctx context.Context)) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return fmt.Errorf("%w: the request's transaction has ended", outbox.ErrNoTransaction)
	}
	u.callbacks = append(u.callbacks, fn)
	return nil
}

// OnCommit runs fn once the request's transaction has committed, before the
// response leaves; never when it was rolled back, or when its outcome is
// unknown. It fails with [outbox.ErrNoTransaction] when the request has no
// transaction of the middleware, or it has ended. The context that fn gets is
// the request's without its end and without the transaction. A panic of fn is
// logged, for nothing can be undone any more.
//
// The callback belongs to the request's transaction as a whole, also when it was
// registered under a savepoint. With two middlewares for different transactors
// it belongs to the inner one's.
func OnCommit(c echo.Context, fn func(ctx context.Context)) error {
	if fn == nil {
		return &outbox.FieldError{Field: "echomw.OnCommit fn", Problem: "is nil"}
	}
	x := exchangeOf(c)
	if x == nil {
		return fmt.Errorf("%w: the request has none; is echomw.Transaction mounted, and the method not one of its ReadOnlyMethods?", outbox.ErrNoTransaction)
	}
	return x.unit.onCommit(fn)
}

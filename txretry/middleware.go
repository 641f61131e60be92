package txretry

import (
	"context"
	"errors"

	"github.com/outboxkit/outbox-go/outbox"
)

// Watch is for a middleware, which calls it with the context of a transaction that has just begun. The
// transaction then notices that the database rolled it back, even if the handler goes on, and reports
// that the outcome of COMMIT is unknown. Outside of [Do], Watch does nothing.
func Watch(ctx context.Context) {
	if scope, found := outbox.InnermostScope(ctx); found && attemptOf(ctx) != nil {
		_ = scope.AtCommit(func() {}) // else the transaction is over, as the handler will see
	}
}

// Conflict is for a middleware, which calls it with the context of a transaction that is rolled back or
// did not commit, and with the error. The result is the conflict because of which the function of [Do]
// may run again, or nil: the error, or the error with which the database refused a statement of the
// transaction although the handler has not returned it, or the conflict of a transaction inside. The
// middleware returns the conflict to Do unless the attempt is the [Last]. Outside of Do the result is nil.
func Conflict(ctx context.Context, err error) error {
	a := attemptOf(ctx)
	if a == nil || errors.Is(err, outbox.ErrOutcomeUnknown) {
		return nil
	}
	conflict := conflictOf(ctx, err)
	if inner := a.inner.Load(); conflict == nil && inner != nil {
		conflict = *inner
	}
	a.note(conflict)
	return conflict
}

// conflictOf asks the innermost transaction that ctx carries. The transactions of all adapters of this
// project know their conflicts.
func conflictOf(ctx context.Context, err error) error {
	scope, _ := outbox.InnermostScope(ctx)
	if s, ok := scope.(interface{ Conflict(err error) error }); ok {
		return s.Conflict(err)
	}
	if IsConflict(err) {
		return err
	}
	return nil
}

// note tells the attempts of a conflict inside.
func (a *attempt) note(conflict error) {
	for ; a != nil && conflict != nil; a = a.around {
		a.inner.Store(&conflict)
	}
}

// Committed is for a middleware, which calls it after a COMMIT, with the context before and after the
// transaction had begun. The commit must not happen again: Committed is [Stop], unless the transaction
// was a savepoint.
func Committed(ctx, txCtx context.Context) {
	if own, found := outbox.InnermostScope(txCtx); found {
		if around, found := outbox.ScopeFromContext(ctx, own.Source()); found && around.Active() {
			return
		}
	}
	Stop(ctx)
	for a := attemptOf(ctx); a != nil; a = a.around {
		a.over.Store(true)
	}
}

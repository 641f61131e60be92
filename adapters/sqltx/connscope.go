package sqltx

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// connScope is a transaction of a wrapped connection as one adapter writes in
// it: the connection knows neither the pool nor the *sql.Tx above it.
type connScope struct {
	*txscope.Scope
	callbacks *callbackQueue
	source    any
	execer    outbox.Execer
}

var _ outbox.TxScope = connScope{}

// Source is the adapter's pool.
func (s connScope) Source() any { return s.source }

// ExecContext runs the statement in the *sql.Tx. The connection observes it.
func (s connScope) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := s.Scope.AfterCommit(nil); err != nil { // registers nothing, and refuses when it is over
		return nil, err
	}
	return s.execer.ExecContext(ctx, query, args...)
}

// AfterCommit has fn run on the queue's goroutine.
func (s connScope) AfterCommit(fn func(ctx context.Context)) error {
	if fn == nil {
		return s.Scope.AfterCommit(nil)
	}
	return s.Scope.AfterCommit(func(ctx context.Context) {
		s.callbacks.add(func() { fn(ctx) })
	})
}

// AfterRollback has fn run on the queue's goroutine.
func (s connScope) AfterRollback(fn func(ctx context.Context, cause error)) error {
	if fn == nil {
		return s.Scope.AfterRollback(nil)
	}
	return s.Scope.AfterRollback(func(ctx context.Context, cause error) {
		s.callbacks.add(func() { fn(ctx, cause) })
	})
}

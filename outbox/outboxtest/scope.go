package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// Scope is an [outbox.TxScope] that the test ends: [Scope.Commit], [Scope.Rollback],
// [Scope.CommitUnknown]. A Scope is safe for concurrent use. The callbacks run on the goroutine
// that ends the scope, and a panic in a callback does not stop the other callbacks, as with an
// adapter. Rows inserted through a Scope into a [Store] commit or roll back with the scope.
type Scope struct {
	outbox.TxWrites

	source any
	ctx    context.Context // of callbacks; the context does not end with the transaction

	// rows end before callbacks run, so that a callback sees the result.
	rows      txscope.Hooks
	callbacks txscope.Hooks

	mu         sync.Mutex
	ended      bool
	savepoints []string
	inserted   []insertion
}

// insertion is an Insert through the scope, for [Scope.Emitted].
type insertion struct {
	envs   []outbox.Envelope
	undone bool
}

// NewScope begins a transaction of a source, which must be the writer's source: a [DB], or any
// other comparable value.
func NewScope(source any) *Scope {
	return &Scope{source: outbox.PoolOf(source), ctx: context.Background()}
}

// Context returns a context that carries the scope, for [outbox.Writer.Write].
func (s *Scope) Context(ctx context.Context) context.Context {
	return outbox.ContextWithScope(ctx, s)
}

// ExecContext fails with [ErrNoDatabase]: only a [Store] can insert through a
// Scope.
func (s *Scope) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	return nil, noDatabase(query)
}

// Active implements [outbox.TxScope].
func (s *Scope) Active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended
}

// Source implements [outbox.TxScope].
func (s *Scope) Source() any { return s.source }

// AtCommit implements [outbox.TxScope].
func (s *Scope) AtCommit(fn func()) error { return s.callbacks.AtCommit(fn) }

// AfterCommit implements [outbox.TxScope].
func (s *Scope) AfterCommit(fn func(ctx context.Context)) error { return s.callbacks.AfterCommit(fn) }

// AfterRollback implements [outbox.TxScope].
func (s *Scope) AfterRollback(fn func(ctx context.Context, cause error)) error {
	return s.callbacks.AfterRollback(fn)
}

// Emitted are the events that were written into a [Store] in the transaction
// and not rolled back; it implements [Emitter].
func (s *Scope) Emitted() []outbox.Envelope {
	s.mu.Lock()
	defer s.mu.Unlock()
	var envs []outbox.Envelope
	for _, in := range s.inserted {
		if !in.undone {
			envs = append(envs, in.envs...)
		}
	}
	return envs
}

// join ties rows to the transaction: show runs when the transaction commits, before any callback;
// drop runs when the transaction, or the savepoint, is rolled back.
func (s *Scope) join(envs []outbox.Envelope, show, drop func()) error {
	s.mu.Lock()
	at := len(s.inserted)
	s.inserted = append(s.inserted, insertion{envs: slices.Clone(envs)})
	s.mu.Unlock()
	undo := func() {
		s.mu.Lock()
		s.inserted[at].undone = true
		s.mu.Unlock()
		drop()
	}
	err := s.rows.AfterRollback(func(context.Context, error) { undo() })
	if err == nil {
		err = s.rows.AfterCommit(func(context.Context) { show() })
	}
	if err != nil {
		undo()
	}
	return err
}

// Commit makes the rows visible and runs the AfterCommit callbacks in order. Commit fails with
// [sql.ErrTxDone] when the scope has ended.
func (s *Scope) Commit() error {
	return s.finish(txscope.Committed, txscope.Committed, nil)
}

// Rollback removes the rows and runs the AfterRollback callbacks in order with the cause, which may
// be nil. On a scope that has ended Rollback does nothing and returns [sql.ErrTxDone].
func (s *Scope) Rollback(cause error) error {
	return s.finish(txscope.RolledBack, txscope.RolledBack, cause)
}

// CommitUnknown ends the scope as if the connection broke during COMMIT: the
// AfterRollback callbacks get a cause that is [outbox.ErrOutcomeUnknown]. The test
// says whether the rows were committed.
func (s *Scope) CommitUnknown(landed bool) error {
	rows := txscope.RolledBack
	if landed {
		rows = txscope.Committed
	}
	return s.finish(rows, txscope.Unknown, errors.New("the connection broke"))
}

func (s *Scope) finish(rows, callbacks txscope.End, cause error) error {
	s.mu.Lock()
	ended := s.ended
	s.ended = true
	s.mu.Unlock()
	if ended {
		return sql.ErrTxDone
	}
	txscope.Run(s.ctx, s.rows.Finish(rows, nil))
	txscope.Run(s.ctx, s.callbacks.Finish(callbacks, cause))
	return nil
}

// Savepoint begins a savepoint, which hides an older savepoint of the same name until it is
// released.
func (s *Scope) Savepoint(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return sql.ErrTxDone
	}
	s.savepoints = append(s.savepoints, name)
	s.rows.Savepoint(name)
	s.callbacks.Savepoint(name)
	return nil
}

// RollbackTo rolls back to a savepoint, which stays: rows inserted since are gone,
// and the AfterRollback callbacks registered since run now.
func (s *Scope) RollbackTo(name string) error {
	if err := s.keepSavepoints(name, 1); err != nil {
		return err
	}
	txscope.Run(s.ctx, s.rows.RollbackTo(name))
	txscope.Run(s.ctx, s.callbacks.RollbackTo(name))
	return nil
}

// Release ends a savepoint and the savepoints within it: callbacks registered since then belong to
// the enclosing level.
func (s *Scope) Release(name string) error {
	if err := s.keepSavepoints(name, 0); err != nil {
		return err
	}
	s.rows.Release(name)
	s.callbacks.Release(name)
	return nil
}

// keepSavepoints drops the newest savepoint of that name and all later savepoints, except the first
// keep of these.
func (s *Scope) keepSavepoints(name string, keep int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return sql.ErrTxDone
	}
	for i, known := range slices.Backward(s.savepoints) {
		if known == name {
			s.savepoints = s.savepoints[:i+keep]
			return nil
		}
	}
	return fmt.Errorf("outboxtest: there is no savepoint %q", name)
}

package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

// Scope is an [outbox.TxScope] whose end the test decides: [Scope.Commit],
// [Scope.Rollback], [Scope.CommitUnknown]. It is safe for concurrent use; the
// callbacks run on the goroutine that ends it. What is inserted through it into
// a [Store] shares its fate.
type Scope struct {
	source any
	ctx    context.Context // of callbacks; it does not end with the transaction

	mu    sync.Mutex // never held while a callback runs
	state scopeState
	log   []scopeEntry
}

type scopeState uint8

const (
	scopeOpen scopeState = iota
	scopeCommitted
	scopeRolledBack
	scopeUnknown
)

// scopeEntry is a savepoint or something that was registered.
type scopeEntry struct {
	savepoint     string
	afterCommit   func(ctx context.Context)
	afterRollback func(ctx context.Context, cause error)
	apply, undo   func()
}

// NewScope begins a transaction of a source, which is the one that the writer
// was given: a [DB], or whatever else can be compared.
func NewScope(source any) *Scope {
	return &Scope{source: outbox.PoolOf(source), ctx: context.Background()}
}

// Context returns a context that carries the scope, for [outbox.Writer.Write].
func (s *Scope) Context(ctx context.Context) context.Context {
	return outbox.ContextWithScope(ctx, s)
}

// ExecContext fails with [ErrNoDatabase]; only a [Store] can insert through a
// Scope.
func (s *Scope) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	return nil, noDatabase(query)
}

// Active implements [outbox.TxScope].
func (s *Scope) Active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == scopeOpen
}

// Source implements [outbox.TxScope].
func (s *Scope) Source() any { return s.source }

// AfterCommit implements [outbox.TxScope].
func (s *Scope) AfterCommit(fn func(ctx context.Context)) error {
	return s.register(scopeEntry{afterCommit: fn})
}

// AfterRollback implements [outbox.TxScope].
func (s *Scope) AfterRollback(fn func(ctx context.Context, cause error)) error {
	return s.register(scopeEntry{afterRollback: fn})
}

// join ties something to the fate of the transaction: apply runs when it
// commits, before any callback; undo when it, or its savepoint, is rolled back.
func (s *Scope) join(apply, undo func()) error {
	return s.register(scopeEntry{apply: apply, undo: undo})
}

func (s *Scope) register(e scopeEntry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != scopeOpen {
		return fmt.Errorf("%w: it has ended", outbox.ErrNoTransaction)
	}
	s.log = append(s.log, e)
	return nil
}

// Commit makes the rows visible and runs the AfterCommit callbacks in order. It
// fails with sql.ErrTxDone when the scope has ended. A callback's panic comes
// back from here once all of them have run.
func (s *Scope) Commit() error {
	log, err := s.end(scopeCommitted)
	if err != nil {
		return err
	}
	applyAll(log)
	runAll(log, s.ctx, true, nil)
	return nil
}

// Rollback removes the rows and runs the AfterRollback callbacks in order with
// the cause, which may be nil. On a scope that has ended it does nothing and
// returns sql.ErrTxDone.
func (s *Scope) Rollback(cause error) error {
	log, err := s.end(scopeRolledBack)
	if err != nil {
		return err
	}
	undoAll(log)
	runAll(log, s.ctx, false, cause)
	return nil
}

// CommitUnknown ends the scope as when the connection breaks during COMMIT: the
// AfterRollback callbacks get a cause that is [outbox.ErrOutcomeUnknown],
// whether the rows landed, which is for the test to say, or not.
func (s *Scope) CommitUnknown(landed bool) error {
	log, err := s.end(scopeUnknown)
	if err != nil {
		return err
	}
	if landed {
		applyAll(log)
	} else {
		undoAll(log)
	}
	runAll(log, s.ctx, false, fmt.Errorf("%w: the connection broke", outbox.ErrOutcomeUnknown))
	return nil
}

// Savepoint begins a savepoint; a later one of the same name hides an earlier.
func (s *Scope) Savepoint(name string) error {
	if name == "" {
		return errors.New("outboxtest: a savepoint needs a name")
	}
	return s.register(scopeEntry{savepoint: name})
}

// RollbackTo rolls back to a savepoint, which stays: what was inserted since is
// gone, and the AfterRollback callbacks since then run now.
func (s *Scope) RollbackTo(name string) error {
	log, err := s.cut(name)
	if err != nil {
		return err
	}
	undoAll(log)
	runAll(log, s.ctx, false, nil)
	return nil
}

// cut takes everything after a savepoint out of the log.
func (s *Scope) cut(name string) ([]scopeEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(name)
	if err != nil {
		return nil, err
	}
	log := slices.Clone(s.log[i+1:])
	s.log = slices.Delete(s.log, i+1, len(s.log))
	return log, nil
}

// Release ends a savepoint and those within it; what was registered since
// belongs to what is around it.
func (s *Scope) Release(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(name)
	if err != nil {
		return err
	}
	within := slices.DeleteFunc(slices.Clone(s.log[i:]), func(e scopeEntry) bool { return e.savepoint != "" })
	s.log = append(s.log[:i], within...)
	return nil
}

func (s *Scope) find(name string) (int, error) {
	if s.state != scopeOpen {
		return 0, sql.ErrTxDone
	}
	for i, e := range slices.Backward(s.log) {
		if e.savepoint == name && name != "" {
			return i, nil
		}
	}
	return 0, fmt.Errorf("outboxtest: there is no savepoint %q", name)
}

func (s *Scope) end(state scopeState) ([]scopeEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != scopeOpen {
		return nil, sql.ErrTxDone
	}
	s.state = state
	log := s.log
	s.log = nil
	return log, nil
}

func applyAll(log []scopeEntry) {
	for _, e := range log {
		if e.apply != nil {
			e.apply()
		}
	}
}

func undoAll(log []scopeEntry) {
	for _, e := range slices.Backward(log) {
		if e.undo != nil {
			e.undo()
		}
	}
}

// runAll runs the callbacks of one kind, each whatever another does, and
// panics at the end with the first panic among them.
func runAll(log []scopeEntry, ctx context.Context, commit bool, cause error) {
	var panicked any
	run := func(fn func()) {
		defer func() {
			if r := recover(); r != nil && panicked == nil {
				panicked = r
			}
		}()
		fn()
	}
	for _, e := range log {
		switch {
		case commit && e.afterCommit != nil:
			run(func() { e.afterCommit(ctx) })
		case !commit && e.afterRollback != nil:
			run(func() { e.afterRollback(ctx, cause) })
		}
	}
	if panicked != nil {
		panic(panicked)
	}
}

package txscope

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/outboxkit/outbox-go/outbox"
)

// Tx is the transaction below a [Session]: *sql.Tx, or what a framework has in
// its place.
type Tx interface {
	outbox.Execer
	Commit() error
	Rollback() error
}

// SessionConfig is what a [Session] is made of.
type SessionConfig struct {
	// Source is the connection pool of the transaction; see [outbox.PoolOf].
	Source any
	// Dialect is one of the constants, or empty.
	Dialect string
	// Probe has the database asked, before COMMIT, whether the transaction has
	// failed; see [NeedsProbe].
	Probe bool
	// Logger is told of callbacks that panic. Defaults to slog.Default().
	Logger *slog.Logger
	// OnEnd, when it is not nil, is called once when the transaction has ended,
	// before the callbacks run.
	OnEnd func()
}

// Session is the life of one transaction from BEGIN to its end: it keeps the
// transaction apart from the end of the caller's context, rolls it back when
// that comes, finds out what came of COMMIT, and runs the callbacks of its
// [Scope] when the connection is back in the pool. It is safe for concurrent
// use.
type Session struct {
	// ctx is the caller's: the transaction lives as long as it does.
	ctx     context.Context
	scope   *Scope
	probe   bool
	onEnd   func()
	execer  func() outbox.Execer // nil when the transaction was collected
	unseen  error                // of an adopted one whose transaction is not known
	undo    func(cause error) (Outcome, error)
	stop    func()      // cleans up after the end
	unwatch func() bool // stops the rollback at the end of ctx

	ending  atomic.Bool
	undoing atomic.Bool // ending by a rollback of our own, which comes to an end
	over    atomic.Bool
	ended   chan struct{} // closed when the database has answered
}

func newSession(ctx context.Context, cfg SessionConfig) *Session {
	s := &Session{ctx: ctx, probe: cfg.Probe, onEnd: cfg.OnEnd, ended: make(chan struct{})}
	s.unwatch = func() bool { return true }
	s.scope = New(Config{Source: cfg.Source, Execer: sessionExecer{s}, Dialect: cfg.Dialect, Logger: cfg.Logger})
	return s
}

// BeginSession begins a transaction whose context database/sql does not watch: it
// would roll back in the middle of a COMMIT, and without telling anybody. The end
// of ctx interrupts begin, and later rolls the transaction back until COMMIT is
// sent. begin gets a context of its own for the transaction.
//
// The session does not keep the transaction alive: database/sql does that while
// it is open. One that ended behind our back is collected in time, and its
// callbacks then hear of an unknown outcome.
func BeginSession[T any, P interface {
	*T
	Tx
}](ctx context.Context, cfg SessionConfig, begin func(ctx context.Context) (P, error)) (P, *Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forwarding := context.AfterFunc(ctx, cancel) // a BEGIN may wait for a connection
	tx, err := begin(inner)
	if !forwarding() {
		if err == nil {
			_ = tx.Rollback()
		}
		cancel()
		return nil, nil, ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	s := newSession(ctx, cfg)
	handle := weak.Make((*T)(tx))
	s.execer = func() outbox.Execer {
		if tx := handle.Value(); tx != nil {
			return P(tx)
		}
		return nil
	}
	s.undo = func(error) (Outcome, error) {
		if tx := handle.Value(); tx != nil {
			return RollbackOutcome(P(tx).Rollback())
		}
		return Unknown, sql.ErrTxDone
	}
	cleanup := runtime.AddCleanup((*T)(tx), func(s *Session) { go s.Lost() }, s)
	s.stop = func() {
		cancel()
		cleanup.Stop()
	}
	s.watch()
	return tx, s, nil
}

func (s *Session) watch() {
	s.unwatch = context.AfterFunc(s.ctx, func() { _ = s.end(context.Cause(s.ctx)) })
}

// Scope is what the outbox writes in.
func (s *Session) Scope() *Scope { return s.scope }

// Ending reports whether the transaction has ended or is about to.
func (s *Session) Ending() bool { return s.ending.Load() }

// Commit commits, unless the context has ended, or the transaction is gone or
// has failed: then it rolls back and returns why. When it returns, the callbacks
// have run, unless the end of the context had begun to roll back before: they run
// beside that. An error for which errors.Is(err, [outbox.ErrOutcomeUnknown]) holds
// leaves open what happened.
func (s *Session) Commit(commit func() error) error {
	if err := s.BeforeCommit(); err != nil {
		return err
	}
	return s.AfterCommit(commit())
}

// BeforeCommit is the part of [Session.Commit] before COMMIT. When it returns an
// error, the transaction has ended otherwise, and COMMIT must not be sent.
func (s *Session) BeforeCommit() error {
	if !s.ending.CompareAndSwap(false, true) {
		s.await()
		if err := s.ctx.Err(); err != nil {
			return err
		}
		return sql.ErrTxDone
	}
	s.unwatch()
	if err := s.ctx.Err(); err != nil {
		s.abandon(err, context.Cause(s.ctx))
		return err
	}
	if !s.scope.Used() {
		return nil // the driver's business, and the caller's
	}
	s.scope.Verify(s.ctx)
	if cause := s.scope.Doomed(); cause != nil {
		err := fmt.Errorf("outbox: the transaction was rolled back before COMMIT: %w", cause)
		s.abandon(err, cause)
		return err
	}
	if err := s.ask(); err != nil {
		s.abandon(err, err)
		return err
	}
	return nil
}

// await waits for the rollback that is under way because the context ended.
func (s *Session) await() {
	if s.undoing.Load() {
		<-s.ended
	}
}

func (s *Session) abandon(err, cause error) {
	outcome, undoErr := s.undo(err)
	if outcome == Unknown && undoErr != nil {
		cause = undoErr
	}
	s.finish(outcome, cause)
}

// ask finds out whether the transaction can commit, where the driver would not
// tell that PostgreSQL answered COMMIT with ROLLBACK.
func (s *Session) ask() error {
	if !s.probe || !s.scope.Held() {
		return nil
	}
	tx := s.execer()
	if tx == nil {
		return nil
	}
	_, err := tx.ExecContext(context.WithoutCancel(s.ctx), "SELECT 1")
	if errors.Is(err, sql.ErrTxDone) {
		return nil // COMMIT will say so, too
	}
	return err
}

// AfterCommit is the part of [Session.Commit] after COMMIT, which returned err.
func (s *Session) AfterCommit(err error) error {
	outcome := Classify(err)
	s.finish(outcome, err)
	if outcome == Unknown {
		return fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, err)
	}
	return err
}

// Rollback rolls the transaction back, once; later calls return
// [sql.ErrTxDone]. When it returns, the callbacks have run and were told cause,
// unless the end of the context had begun to roll back before: then it returns
// [sql.ErrTxDone] too, and they run beside the caller.
func (s *Session) Rollback(cause error) error {
	s.unwatch()
	return s.end(cause)
}

func (s *Session) end(cause error) error {
	if !s.ending.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	s.undoing.Store(true)
	outcome, err := s.undo(cause)
	if outcome == Unknown {
		cause = err
	}
	s.finish(outcome, cause)
	return err
}

// Lost ends the session of a transaction that nobody holds any more, and that
// was ended, but not by us. It does nothing when the session has ended.
func (s *Session) Lost() {
	if !s.ending.Swap(true) {
		s.unwatch()
	}
	s.finish(Unknown, sql.ErrTxDone)
}

// finish forgets the transaction and runs the callbacks. The connection is back
// in the pool.
func (s *Session) finish(outcome Outcome, cause error) {
	if s.over.Swap(true) {
		return
	}
	s.stop()
	if s.onEnd != nil {
		s.onEnd()
	}
	close(s.ended)
	s.scope.Finish(s.ctx, outcome, cause)
}

// Release ends a savepoint of the transaction for good: with release, or with
// rollbackTo when ctx has ended or the work under it has failed, and then it
// returns why. Both functions run their statement in the transaction whatever
// became of ctx.
func (s *Session) Release(ctx context.Context, release, rollbackTo func() error) error {
	if s.Ending() {
		return sql.ErrTxDone
	}
	if cause := s.scope.Doomed(); cause != nil {
		return fmt.Errorf("outbox: the transaction was rolled back by the database: %w", cause)
	}
	if err := ctx.Err(); err != nil {
		_ = rollbackTo()
		return err
	}
	var err error
	if s.probe {
		err = s.scope.Failed() // RELEASE could cost the connection
	}
	if err == nil {
		err = release()
	}
	if err != nil {
		// On PostgreSQL a statement failed and nobody minded. Without this the
		// transaction around the savepoint could not go on.
		_ = rollbackTo()
		return fmt.Errorf("outbox: releasing a savepoint: %w", err)
	}
	return nil
}

// RollbackOutcome says what a ROLLBACK that returned err did. The transaction is
// rolled back even when the connection broke, as no COMMIT was sent. It is open
// what happened when somebody else ended it, and when the database itself
// refuses, as SQLite does when there is no transaction any more.
func RollbackOutcome(err error) (Outcome, error) {
	if err != nil && (errors.Is(err, sql.ErrTxDone) || strings.Contains(err.Error(), "no transaction is active")) {
		return Unknown, err
	}
	return RolledBack, err
}

// sessionExecer runs the statements of the scope.
type sessionExecer struct{ s *Session }

func (e sessionExecer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if e.s.undoing.Load() { // whether the statement came before the ROLLBACK or not
		return nil, fmt.Errorf("%w: it is being rolled back: %w", outbox.ErrNoTransaction, cmp.Or(context.Cause(e.s.ctx), sql.ErrTxDone))
	}
	tx := e.s.execer()
	if tx == nil {
		return nil, fmt.Errorf("%w: %w", outbox.ErrNoTransaction, cmp.Or(e.s.unseen, sql.ErrTxDone))
	}
	result, err := tx.ExecContext(ctx, query, args...)
	if errors.Is(err, sql.ErrTxDone) { // it is ending just now, or was ended behind our back
		err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	return result, err
}

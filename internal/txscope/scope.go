package txscope

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// Dialects that [New] distinguishes. Any other dialect follows the rules that all databases share.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
	SQLite   = "sqlite"
)

// Scope is a transaction. A Scope has the methods of [outbox.TxScope] that need nothing from the
// adapter, and is safe for concurrent use.
type Scope struct {
	outbox.TxWrites

	exec      func(ctx context.Context, query string) error
	dialect   string
	hooks     Hooks
	callbacks callbacks
	cause     atomic.Pointer[error]
	ended     atomic.Bool
	fate      atomic.Pointer[fate]
	failed    atomic.Pointer[error] // see Failed
	conflict  atomic.Pointer[error] // see Conflict
	outcome   atomic.Int32          // the end, once the transaction has ended
	suspect   atomic.Pointer[suspicion]
	unsure    atomic.Bool // see Verify
}

// fate is an end of the transaction before COMMIT or ROLLBACK.
type fate struct {
	end         End
	cause       error
	byStatement bool // of the code in the transaction
}

// New makes the scope of a transaction that has just begun. exec runs a statement
// on the transaction's connection without showing it to the scope.
func New(dialect string, exec func(ctx context.Context, query string) error) *Scope {
	return &Scope{dialect: dialect, exec: exec}
}

// Active reports whether events can still be written: false after
// [Scope.Finish], and as soon as the database ended the transaction by itself.
func (s *Scope) Active() bool { return !s.ended.Load() && s.fate.Load() == nil }

// Ended reports whether [Scope.Finish] was called.
func (s *Scope) Ended() bool { return s.ended.Load() }

// Suspected reports whether [Scope.Verify] has a question for the database.
func (s *Scope) Suspected() bool { return s.suspect.Load() != nil }

// Held reports whether a registered function waits for the end of the transaction. Without such a
// function, the transaction does not concern the outbox.
func (s *Scope) Held() bool { return s.hooks.Held() }

// AtCommit implements [outbox.TxScope].
func (s *Scope) AtCommit(fn func()) error {
	if err := s.Refusal(); err != nil {
		return err
	}
	return s.hooks.AtCommit(fn)
}

// AfterCommit implements [outbox.TxScope]. fn gets the context of [Scope.Finish] without the end of
// that context.
func (s *Scope) AfterCommit(fn func(ctx context.Context)) error {
	if err := s.Refusal(); err != nil {
		return err
	}
	return s.hooks.AfterCommit(fn)
}

// AfterRollback implements [outbox.TxScope]. fn gets the context of [Scope.Finish] or
// [Scope.Observe] without the end of that context.
func (s *Scope) AfterRollback(fn func(ctx context.Context, cause error)) error {
	if err := s.Refusal(); err != nil {
		return err
	}
	return s.hooks.AfterRollback(fn)
}

// Refusal is the error of a write in a transaction that is over, or nil. After a deadlock on MySQL,
// the statement of the write would commit by itself. A transaction about which the database does
// not answer is refused for the same reason.
func (s *Scope) Refusal() error {
	if f := s.fate.Load(); f != nil {
		return fmt.Errorf("%w: it has ended before its time: %w", outbox.ErrNoTransaction, f.cause)
	}
	if s.ended.Load() {
		return fmt.Errorf("%w: it has ended", outbox.ErrNoTransaction)
	}
	if s.unsure.Load() {
		return errors.New("outbox: the database does not answer whether the transaction still exists; read the rows of the other statement first")
	}
	return nil
}

// Observe reports to the scope a statement that ran in the transaction, and the error of the
// statement. The scope follows savepoints. A statement that ends the transaction, and an error with
// which the database ends the transaction, decide the transaction's fate: further writes are
// refused, and [Scope.Finish] reports this fate whatever its arguments are.
func (s *Scope) Observe(ctx context.Context, query string, err error) {
	s.ObserveError(err)
	if statement := Parse(s.dialect, query); statement.Op != None {
		s.apply(ctx, statement, err)
	}
}

// ObserveError reports to the scope an error that came without a statement, such as an error of a
// query's rows.
func (s *Scope) ObserveError(err error) {
	if err == nil {
		return
	}
	if EndedByServer(err) {
		s.decide(RolledBack, err)
	}
	if sqlerr.IsConflict(err) {
		conflict := err
		s.conflict.Store(&conflict)
	}
	switch {
	case s.dialect == Postgres && Classify(err) == RolledBack:
		failure := err // else every err would be moved to the heap
		s.failed.Store(&failure)
	case s.dialect == SQLite && !errors.Is(err, sql.ErrTxDone), s.dialect == MySQL && sqlerr.HasNumber(err, 1205):
		s.suspectEnd(RolledBack, err)
	}
}

// Failed is the last error that a statement returned on PostgreSQL, as long as no ROLLBACK TO
// followed it, or nil. Until a ROLLBACK TO, the server refuses every other statement, and pgdriver
// drops the connection after a refused RELEASE.
func (s *Scope) Failed() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Conflict is why the transaction may succeed when it runs again, or nil: err, if it is a conflict, or the
// last error with which the database refused a statement because of another transaction. There is none if
// the transaction has ended in another way than by a rollback. See package txretry.
func (s *Scope) Conflict(err error) error {
	if f := s.fate.Load(); f != nil && f.end != RolledBack || s.ended.Load() && s.outcome.Load() != int32(RolledBack) {
		return nil
	}
	if sqlerr.IsConflict(err) {
		return err
	}
	if conflict := s.conflict.Load(); conflict != nil {
		return *conflict
	}
	return nil
}

// decide fixes the transaction's fate. The first fate holds.
func (s *Scope) decide(end End, cause error) {
	s.fate.CompareAndSwap(nil, &fate{end: end, cause: cause})
}

// decideBy is decide for a statement of the code in the transaction.
func (s *Scope) decideBy(end End, statement string) {
	s.fate.CompareAndSwap(nil, &fate{end: end, cause: errStatement(statement), byStatement: true})
}

// Gone is the error with which the database ended the transaction by itself, or nil. Another statement
// would commit by itself: the code in the transaction did not end it, and does not expect that.
func (s *Scope) Gone() error {
	if f := s.fate.Load(); f != nil && f.end == RolledBack && !f.byStatement {
		return f.cause
	}
	return nil
}

// Doomed is the error with which the database rolled the whole transaction back by itself, or nil.
// COMMIT would then succeed without reporting the rollback: the tap rolls back and returns an error
// instead.
func (s *Scope) Doomed() error {
	if f := s.fate.Load(); f != nil && f.end == RolledBack {
		return f.cause
	}
	return nil
}

func (s *Scope) apply(ctx context.Context, statement Statement, err error) {
	name := s.savepointName(statement.Name)
	switch statement.Op {
	case None:
	case Savepoint:
		if err == nil {
			s.hooks.Savepoint(name)
		}
	case Release:
		if err == nil {
			s.hooks.Release(name)
		}
	case RollbackTo:
		if err == nil {
			s.failed.Store(nil)
			s.callbacks.add(ctx, s.hooks.RollbackTo(name), false)
		} else if !refusesSavepoint(err) {
			s.hooks.Doubt(name) // no answer from the database: the rollback may have happened
		}
	case Commit:
		if err == nil || Classify(err) == Unknown {
			// Even a success is not certain: PostgreSQL answers the COMMIT of a
			// failed transaction by rolling back, without an error, and a prepared
			// transaction may yet be rolled back.
			s.decideBy(Unknown, "a statement that commits or prepares it")
		} else if s.dialect == Postgres {
			s.suspectEnd(RolledBack, err) // the transaction is over, unless the statement was misspelt
		}
	case Rollback:
		if err == nil {
			s.decideBy(RolledBack, "a ROLLBACK statement")
		} else if Classify(err) == Unknown {
			s.decideBy(Unknown, "a ROLLBACK statement")
		}
	case Begin, ImplicitCommit:
		if s.dialect == MySQL {
			// The statement has committed the transaction even when the statement itself failed.
			s.decideBy(Unknown, "a statement that commits on MySQL")
		}
	case Unclear:
		if err == nil {
			s.failed.Store(nil) // on PostgreSQL a failed transaction would have refused the statement
		}
		s.hooks.Unclear()
		s.suspectEnd(Unknown, errStatement("one of several statements in a string, or by a statement that runs others"))
	}
}

func errStatement(what string) error {
	return fmt.Errorf("outbox: the transaction was ended by %s in it", what)
}

// savepointName brings names to the form in which the database compares them.
func (s *Scope) savepointName(name string) string {
	if s.dialect != Postgres {
		return lower(name) // quoted or not
	}
	const limit = 63 // bytes; PostgreSQL cuts longer names
	if len(name) > limit {
		return strings.ToValidUTF8(name[:limit], "")
	}
	return name
}

// Because sets the cause that the after-rollback callbacks get when the transaction is rolled back:
// the error that made the adapter roll back.
func (s *Scope) Because(cause error) {
	if cause != nil {
		s.cause.CompareAndSwap(nil, &cause)
	}
}

// Finish ends the scope: it runs the AtCommit functions, and lets the callbacks run afterwards,
// with ctx without its end. Only the first call does anything.
func (s *Scope) Finish(ctx context.Context, end End, cause error) {
	if s.ended.Load() {
		return
	}
	if f := s.fate.Load(); f != nil {
		end, cause = f.end, f.cause
	}
	s.outcome.CompareAndSwap(int32(Unknown), int32(end))
	if s.ended.Swap(true) {
		return
	}
	if led := s.cause.Load(); led != nil && cause == nil {
		cause = *led
	}
	if s.unsure.Load() {
		s.hooks.Doubt("") // COMMIT may have found no transaction
	}
	s.callbacks.add(ctx, s.hooks.Finish(end, cause), true)
}

// EndWith calls end, which ends the transaction or waits for the end. EndWith returns the error of
// end when the callbacks have run.
func (s *Scope) EndWith(end func() error) error {
	s.callbacks.hold()
	err := end()
	s.callbacks.release()
	return err
}

package txscope

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// Dialects that [Config] tells apart. Any other follows the rules that all
// databases share.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
	SQLite   = "sqlite"
)

// Config is what a [Scope] is made of.
type Config struct {
	// Source is the connection pool of the transaction; see [outbox.PoolOf].
	Source any
	// Execer runs statements on the transaction's connection, without anything
	// of the adapter's in between.
	Execer outbox.Execer
	// Dialect is one of the constants, or empty.
	Dialect string
	// Logger is told of callbacks that panic. Defaults to slog.Default().
	Logger *slog.Logger
}

// Scope is one transaction. It is safe for concurrent use.
type Scope struct {
	source  any
	execer  outbox.Execer
	dialect string
	hooks   Hooks
	ended   atomic.Bool
	fate    atomic.Pointer[fate]
	failed  atomic.Pointer[error] // see Failed
	suspect atomic.Pointer[suspicion]
	unsure  atomic.Bool // see verify
}

var _ outbox.TxScope = (*Scope)(nil)

// fate is an end that came before COMMIT or ROLLBACK did.
type fate struct {
	outcome Outcome
	cause   error
}

// New makes the scope of a transaction that has just begun.
func New(cfg Config) *Scope {
	s := &Scope{source: cfg.Source, execer: cfg.Execer, dialect: cfg.Dialect}
	s.hooks.Logger = cfg.Logger
	return s
}

// Source is the connection pool of the transaction.
func (s *Scope) Source() any { return s.source }

// Active reports whether events can still be written: false after
// [Scope.Finish], and as soon as the database ended the transaction by itself.
func (s *Scope) Active() bool { return !s.ended.Load() && s.fate.Load() == nil }

// Used reports whether any callback was ever registered: if not, the transaction
// has nothing to do with the outbox.
func (s *Scope) Used() bool { return s.hooks.Used() }

// Held reports whether any callback waits for the end of the transaction.
func (s *Scope) Held() bool { return s.hooks.Held() }

// ExecContext runs a statement on the transaction's connection. It fails with
// [outbox.ErrNoTransaction] when the transaction is over: after a deadlock on
// MySQL, the statement would commit by itself.
func (s *Scope) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	err := s.verify(ctx)
	if err = errors.Join(s.refuse(), err); err != nil {
		return nil, err
	}
	result, err := s.execer.ExecContext(ctx, query, args...)
	if err != nil {
		s.watch(err)
	}
	return result, err
}

// AfterCommit implements [outbox.TxScope]. The context that fn gets is that of
// [Scope.Finish] without its end.
func (s *Scope) AfterCommit(fn func(ctx context.Context)) error {
	if err := s.refuse(); err != nil {
		return err
	}
	return s.hooks.AfterCommit(fn)
}

// AfterRollback implements [outbox.TxScope]. The context that fn gets is that
// of [Scope.Finish] or [Scope.Observe] without its end.
func (s *Scope) AfterRollback(fn func(ctx context.Context, cause error)) error {
	if err := s.refuse(); err != nil {
		return err
	}
	return s.hooks.AfterRollback(fn)
}

func (s *Scope) refuse() error {
	if f := s.fate.Load(); f != nil {
		return fmt.Errorf("%w: it has ended before its time: %w", outbox.ErrNoTransaction, f.cause)
	}
	if s.ended.Load() {
		return fmt.Errorf("%w: it has ended", outbox.ErrNoTransaction)
	}
	return nil
}

// Observe tells the scope of a statement that ran in the transaction, and what
// it returned. Savepoints are followed; after-rollback callbacks of what a
// savepoint took with it run before Observe returns. A statement that ends the
// transaction, and an error with which MySQL does, decide its fate: further
// writes are refused, and [Scope.Finish] reports that fate whatever it is told.
func (s *Scope) Observe(ctx context.Context, query string, err error) {
	if err != nil {
		s.watch(err)
	}
	for rest := query; rest != ""; {
		statement, next := parse(rest)
		if statement.Op == None {
			if mayHide(rest) {
				s.Unclear(Unknown, errStatement("perhaps a COMMIT or ROLLBACK among other statements"))
			}
			return
		}
		s.apply(ctx, statement, err)
		rest = next
	}
}

// Unclear takes note of a statement that may have ended the transaction, with
// that outcome, or undone some of it: what was written so far becomes of unknown
// outcome, unless the whole transaction is rolled back, and before the next write
// the database is asked whether there still is one.
func (s *Scope) Unclear(outcome Outcome, why error) {
	s.hooks.Doubt("")
	s.Suspect(outcome, why)
}

// UnclearSince is [Scope.Unclear] of a rollback to a savepoint that may have been
// another transaction's.
func (s *Scope) UnclearSince(query string) {
	s.hooks.Doubt(s.savepointName(Parse(query).Name))
}

// ObserveError tells the scope of an error of a statement that can be no
// savepoint, such as one that a query's rows returned.
func (s *Scope) ObserveError(err error) {
	if err != nil {
		s.watch(err)
	}
}

// watch looks for errors with which the database ended the transaction.
func (s *Scope) watch(err error) {
	if EndedByServer(err) {
		s.decide(RolledBack, err)
	}
	switch {
	case s.dialect == Postgres && Classify(err) == RolledBack:
		s.failed.Store(&err)
	case s.dialect == SQLite && !errors.Is(err, sql.ErrTxDone), s.dialect == MySQL && sqlerr.HasNumber(err, 1205):
		s.Suspect(RolledBack, err)
	}
}

// Failed is the last error that a statement returned on PostgreSQL, as far as no
// ROLLBACK TO has mended it, or nil. The server refuses every other statement
// until then, and a driver may drop the connection over that (pgdriver does).
func (s *Scope) Failed() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Doom takes note that the database has rolled the whole transaction back by
// itself; see [Scope.Doomed].
func (s *Scope) Doom(cause error) { s.decide(RolledBack, cause) }

// Doubt leaves open what becomes of everything that was written, whatever COMMIT
// will say, for some of it may have been undone unseen.
func (s *Scope) Doubt(cause error) { s.decide(Unknown, cause) }

// decide fixes the transaction's fate. The first one holds.
func (s *Scope) decide(outcome Outcome, cause error) {
	s.fate.CompareAndSwap(nil, &fate{outcome: outcome, cause: cause})
}

// Doomed is the error with which the database rolled the whole transaction back
// by itself, or nil. COMMIT would then say nothing of it: an adapter rolls back
// and returns an error instead.
func (s *Scope) Doomed() error {
	if f := s.fate.Load(); f != nil && f.outcome == RolledBack {
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
			s.hooks.RollbackTo(context.WithoutCancel(ctx), name)
		} else if Classify(err) == Unknown {
			s.hooks.Doubt(name) // no answer from the database: it may have happened
		}
	case Commit:
		if err == nil || Classify(err) == Unknown {
			// Even a success does not tell: PostgreSQL answers the COMMIT of a
			// failed transaction by rolling back, without an error, and what was
			// prepared may yet be rolled back.
			s.decide(Unknown, errStatement("a statement that commits or prepares it"))
		} else if s.dialect == Postgres {
			s.Suspect(RolledBack, err) // refused, it is over, unless the words were wrong
		}
	case Rollback:
		if err == nil {
			s.decide(RolledBack, errStatement("a ROLLBACK statement"))
		} else if Classify(err) == Unknown {
			s.decide(Unknown, errStatement("a ROLLBACK statement"))
		}
	case Begin, ImplicitCommit:
		if s.dialect == MySQL {
			// It has committed even when the statement itself failed.
			s.decide(Unknown, errStatement("a statement that commits on MySQL"))
		}
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

// Finish ends the scope and runs the callbacks; see [Hooks.Finish]. Call it
// after the connection went back to the pool, so that a callback may use the
// database when the pool has one connection. The callbacks' context is ctx
// without its end. Only the first call does anything.
func (s *Scope) Finish(ctx context.Context, outcome Outcome, cause error) {
	s.ended.Store(true)
	if f := s.fate.Load(); f != nil {
		outcome, cause = f.outcome, f.cause
	}
	if s.unsure.Load() {
		s.hooks.Doubt("") // COMMIT may have found no transaction
	}
	s.hooks.Finish(context.WithoutCancel(ctx), outcome, cause)
}

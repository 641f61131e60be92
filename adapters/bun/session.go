package outboxbun

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"reflect"
	"sync/atomic"
	"weak"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

type sessionKey struct{ hook *hook }

// session is what the hook keeps of one transaction.
type session struct {
	*txscope.Session
	hook    *hook
	life    life
	address uintptr // of the lifetime
	begun   atomic.Bool
	over    atomic.Bool

	// tx is learnt from the bun.Tx that is written in: the hook never sees it.
	tx atomic.Pointer[weak.Pointer[sql.Tx]]

	strayRollbacks uint64 // of the hook, at BEGIN
	strayErrors    atomic.Uint64
	committing     atomic.Bool
	committer      atomic.Bool           // a COMMIT of bun's is under way
	roller         atomic.Bool           // a ROLLBACK of bun's is
	result         atomic.Pointer[error] // what COMMIT came to
	// entangled: a transaction was begun with the context of another one, so that
	// statements which have that context may be either's.
	entangled atomic.Bool
}

func (h *hook) session(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{h}).(*session)
	return s
}

// newSession is called before BEGIN.
func (h *hook) newSession(ctx context.Context) *lifetime {
	s := &session{hook: h, strayRollbacks: h.strayRollbacks.Load()}
	s.strayErrors.Store(h.strayErrors.Load())
	s.Session = txscope.Adopt(ctx,
		txscope.SessionConfig{Source: h.source, Dialect: h.dialect, Probe: h.probe, Logger: h.log},
		txscope.AdoptedTx{Execer: s.execer, Unseen: errUnseen, Undo: s.undo, Release: s.release})
	if outer := h.session(ctx); outer != nil && !outer.Ending() {
		outer.entangled.Store(true)
		s.entangled.Store(true)
	}
	front := newLifetime(ctx, outbox.ContextWithScope(ctx, s.Scope()), s)
	s.address = reflect.ValueOf(front).Pointer()
	sessions.add(s)
	return front
}

// begin is called when BEGIN has succeeded.
func (s *session) begin() {
	s.begun.Store(true)
	if s.life.parent.Err() != nil {
		s.parentEnded() // perhaps it came too early
	}
}

// parentEnded is called when the caller's context ends: it interrupts BEGIN,
// rolls the transaction back, waits for a COMMIT that is under way, and ends
// what still goes on with the transaction's context afterwards.
func (s *session) parentEnded() {
	if s.begun.Load() && !s.over.Load() {
		_ = s.Rollback(context.Cause(s.life.parent)) // release ends the context
		return
	}
	s.life.end(s.life.parent.Err())
}

// release is called once, when the transaction has ended or did not begin.
func (s *session) release() {
	sessions.remove(s)
	s.over.Store(true)
	if err := s.life.parent.Err(); err != nil {
		s.life.end(err)
	}
}

// collected runs when nobody holds the lifetime. A transaction that is still
// open as far as we know was then ended behind our back.
func (s *session) collected() {
	if s.life.stop != nil {
		s.life.stop()
	}
	if !s.over.Load() {
		go s.Lost()
	}
}

// learn takes note of the *sql.Tx. It is false when the session is another's,
// for the transaction is nested and was given a context of another one.
func (s *session) learn(tx bun.Tx) bool {
	handle := weak.Make(tx.Tx)
	if known := s.tx.Load(); known != nil {
		return *known == handle
	}
	if s.entangled.Load() && isNested(tx) {
		return false // it may be nested in either of the two
	}
	return s.tx.CompareAndSwap(nil, &handle) || *s.tx.Load() == handle
}

func (s *session) sqlTx() *sql.Tx {
	if handle := s.tx.Load(); handle != nil {
		return handle.Value()
	}
	return nil
}

func (s *session) execer() outbox.Execer {
	if tx := s.sqlTx(); tx != nil {
		return tx
	}
	return nil
}

var errUnseen = errors.New("bun does not show its transactions to hooks, so that the context alone does not give access to this one: " +
	"call the adapter's Write with the bun.Tx, or put it into the context with outboxbun.WithTx")

// undo rolls back in place of a COMMIT, or because the caller's context ended.
func (s *session) undo(cause error) (txscope.Outcome, error) {
	tx := s.sqlTx()
	ended := s.life.parent.Err()
	switch {
	case tx == nil:
		s.life.end(cmp.Or(ended, cause)) // database/sql rolls back in a moment
		return txscope.Unknown, cause
	case ended == nil && s.committing.Load():
		// The database has undone the transaction, so that COMMIT is harmless
		// should it come through. It does not once the context has ended, and bun
		// returns this error then, unless database/sql is quicker and makes it
		// sql.ErrTxDone.
		s.life.end(cause)
		return txscope.RolledBack, nil
	default:
		// First what runs in the transaction, for ROLLBACK waits for it.
		s.life.interrupt(cmp.Or(ended, cause))
		outcome, err := txscope.RollbackOutcome(tx.Rollback())
		s.life.end(cmp.Or(ended, cause))
		return outcome, err
	}
}

var errStray = errors.New("outbox: a statement that commits or rolls back ran with a context that does not tell in which transaction")

// beforeCommit is called when bun is about to commit.
func (s *session) beforeCommit(ctx context.Context) {
	if s.Scope().Held() {
		s.verify(ctx)
		s.doubt()
	}
	s.committing.Store(true)
	err := s.BeforeCommit()
	s.committing.Store(false)
	switch {
	case err == nil:
		s.committer.Store(true)
	case !errors.Is(err, sql.ErrTxDone):
		s.result.CompareAndSwap(nil, &err)
	}
}

// afterCommit is called with what COMMIT returned.
func (s *session) afterCommit(err error) {
	if !s.committer.CompareAndSwap(true, false) {
		return // it had ended
	}
	if tx := s.sqlTx(); tx != nil && err != nil {
		_ = tx.Rollback() // a COMMIT that was a mere statement leaves it open
	}
	err = s.AfterCommit(err)
	s.result.CompareAndSwap(nil, &err)
}

// doubt leaves it open what becomes of the events when a statement may have
// decided it unseen.
func (s *session) doubt() {
	if s.strayRollbacks != s.hook.strayRollbacks.Load() {
		s.Scope().Doubt(errStray)
	}
}

// beforeRollback is called when bun is about to roll back.
func (s *session) beforeRollback() {
	s.doubt()
	if s.BeforeRollback() {
		s.roller.Store(true)
	}
}

// afterRollback is called with what ROLLBACK returned.
func (s *session) afterRollback(err error) {
	if s.roller.CompareAndSwap(true, false) {
		s.AfterRollback(err)
	}
}

// resume takes beforeCommit or beforeRollback back.
func (s *session) resume() {
	if !s.committer.CompareAndSwap(true, false) && !s.roller.CompareAndSwap(true, false) {
		return
	}
	s.Resume()
	if s.life.parent.Err() != nil {
		s.parentEnded() // it may have come meanwhile
	}
}

var errStrayError = errors.New("an error of a statement whose context does not tell in which transaction it ran, such as a deadlock")

// verify has the scope find out whether the transaction is still there, after
// errors with which the database may have ended it. The hook cannot tell errors
// of this transaction from those of others that ran with its context, nor whose
// those without any context of ours are.
func (s *session) verify(ctx context.Context) {
	if stray := s.hook.strayErrors.Load(); s.strayErrors.Swap(stray) != stray {
		outcome := txscope.RolledBack
		if s.strayRollbacks != s.hook.strayRollbacks.Load() {
			outcome = txscope.Unknown // there was a COMMIT, perhaps
		}
		s.Scope().Suspect(outcome, errStrayError)
	}
	s.Scope().Verify(ctx)
}

// sessionOf finds the session of a transaction, nil when it has none: it was
// begun on a db without the hook, or is nested and has a foreign context.
func sessionOf(tx bun.Tx) *session {
	if address, ok := addressOfLifetime(tx); ok {
		if s := sessions.at(address); s != nil {
			return s
		}
	}
	return ask(tx)
}

var (
	lifetimeType    = reflect.TypeFor[*lifetime]()
	contextField, _ = reflect.TypeFor[bun.Tx]().FieldByName("ctx")
	nameField, _    = reflect.TypeFor[bun.Tx]().FieldByName("name")
)

// isNested reports whether the transaction is a savepoint, or may be one.
func isNested(tx bun.Tx) bool {
	return nameField.Index == nil || reflect.ValueOf(&tx).Elem().FieldByIndex(nameField.Index).String() != ""
}

// addressOfLifetime looks for the lifetime in the context that bun keeps in the
// transaction. bun has no accessor for it; where this way finds nothing, ask
// does, but the other hooks of the db see that.
func addressOfLifetime(tx bun.Tx) (uintptr, bool) {
	if contextField.Index == nil {
		return 0, false
	}
	ctx := reflect.ValueOf(&tx).Elem().FieldByIndex(contextField.Index)
	const depth = 64
	for range depth {
		if ctx.Kind() != reflect.Interface || ctx.IsNil() {
			return 0, false
		}
		ctx = ctx.Elem()
		if ctx.Type() == lifetimeType {
			return ctx.Pointer(), true
		}
		if ctx.Kind() == reflect.Pointer {
			ctx = ctx.Elem()
		}
		if ctx.Kind() != reflect.Struct {
			return 0, false
		}
		if ctx = ctx.FieldByName("Context"); !ctx.IsValid() {
			return 0, false
		}
	}
	return 0, false
}

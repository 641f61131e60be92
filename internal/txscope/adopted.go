package txscope

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

// AdoptedTx is a transaction that an adapter watches from outside, for it is the
// framework that begins and ends it.
type AdoptedTx struct {
	// Execer runs statements on the transaction's connection; nil when it is
	// not known, and then writing in the scope fails with Unseen.
	Execer func() outbox.Execer
	Unseen error
	// Undo rolls the transaction back, because of cause, and says what came of
	// it.
	Undo func(cause error) (Outcome, error)
	// Release frees what the adapter keeps of the transaction.
	Release func()
}

// Adopt makes the session of a transaction that the framework begins with a
// context that does not end with ctx. The adapter shows its end to
// [Session.BeforeCommit], [Session.AfterCommit], [Session.BeforeRollback] and
// [Session.AfterRollback], and calls [Session.Rollback] when ctx ends.
func Adopt(ctx context.Context, cfg SessionConfig, tx AdoptedTx) *Session {
	s := newSession(ctx, cfg)
	s.execer, s.unseen, s.undo, s.stop = tx.Execer, tx.Unseen, tx.Undo, tx.Release
	return s
}

// BeforeRollback takes note that somebody else's ROLLBACK comes. When it returns
// false, the transaction has ended already.
func (s *Session) BeforeRollback() bool {
	if !s.ending.CompareAndSwap(false, true) {
		s.await()
		return false
	}
	s.unwatch()
	return true
}

// Resume takes BeforeCommit or BeforeRollback of an adopted session back, for it
// was no end of the transaction after all.
func (s *Session) Resume() { s.ending.Store(s.over.Load()) }

// AfterRollback ends the session after somebody else's ROLLBACK, which returned
// err.
func (s *Session) AfterRollback(err error) {
	outcome, err := RollbackOutcome(err)
	s.finish(outcome, err)
}

package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"weak"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/txscope"
)

// session is what the outbox keeps of one transaction. It does not keep the
// *sql.Tx alive: database/sql does that while the transaction is open, and one
// that ended behind our back is to be collected, and with it the session.
type session struct {
	// ctx is the caller's: the transaction lives as long as it does.
	ctx     context.Context
	tx      weak.Pointer[sql.Tx]
	scope   *txscope.Scope
	dialect string
	probe   bool
	cancel  context.CancelFunc // of the context that database/sql sees
	unwatch func() bool        // stops the rollback at the end of ctx
	cleanup runtime.Cleanup

	ending     atomic.Bool
	ended      chan struct{} // closed when the database has answered
	savepoints atomic.Uint64
}

// begin begins a transaction whose context database/sql does not watch: it would
// roll back in the middle of a COMMIT, and without telling anybody.
func (a *Adapter) begin(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forwarding := context.AfterFunc(ctx, cancel) // a BEGIN may wait for a connection
	sqlTx, err := a.db.BeginTx(inner, opts)
	if !forwarding() {
		if err == nil {
			_ = sqlTx.Rollback()
		}
		cancel()
		return nil, ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &session{
		ctx: ctx, tx: weak.Make(sqlTx), dialect: a.dialect, probe: a.probe,
		cancel: cancel, ended: make(chan struct{}),
	}
	s.scope = txscope.New(txscope.Config{Source: a.source, Execer: s, Dialect: a.dialect, Logger: a.log})
	sessions.add(s)
	s.cleanup = runtime.AddCleanup(sqlTx, func(s *session) { go s.lost() }, s)
	tx := &Tx{Tx: sqlTx, session: s, ctx: ctx}
	s.unwatch = context.AfterFunc(ctx, func() {
		if sqlTx := s.tx.Value(); sqlTx != nil {
			_ = s.end(sqlTx, context.Cause(ctx))
		}
	})
	return tx, nil
}

// ExecContext runs the statements of the scope.
func (s *session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx := s.tx.Value()
	if tx == nil {
		return nil, sql.ErrTxDone
	}
	return tx.ExecContext(ctx, query, args...)
}

// commit commits unless the context has ended or the transaction is gone.
func (s *session) commit(tx *sql.Tx) error {
	if !s.ending.CompareAndSwap(false, true) {
		<-s.ended // the context ended, and the rollback is under way
		if err := s.ctx.Err(); err != nil {
			return err
		}
		return sql.ErrTxDone
	}
	s.unwatch()
	if err := s.ctx.Err(); err != nil {
		outcome, _ := rollback(tx)
		s.finish(outcome, context.Cause(s.ctx))
		return err
	}
	if cause := s.scope.Doomed(); cause != nil {
		_, _ = rollback(tx)
		s.finish(txscope.RolledBack, cause)
		return doomedError(cause)
	}
	if err := s.ask(tx); err != nil {
		outcome, _ := rollback(tx)
		s.finish(outcome, err)
		return err
	}
	err := tx.Commit()
	outcome := txscope.Classify(err)
	s.finish(outcome, err)
	if outcome == txscope.Unknown {
		return fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, err)
	}
	return err
}

// ask finds out whether the transaction can commit, where the driver would not
// tell that PostgreSQL answered COMMIT with ROLLBACK.
func (s *session) ask(tx *sql.Tx) error {
	if !s.probe || !s.scope.Held() {
		return nil
	}
	_, err := tx.ExecContext(context.WithoutCancel(s.ctx), "SELECT 1")
	if errors.Is(err, sql.ErrTxDone) {
		return nil // COMMIT will say so, too
	}
	return err
}

// rollback rolls back at the caller's wish.
func (s *session) rollback(tx *sql.Tx, cause error) error {
	s.unwatch()
	return s.end(tx, cause)
}

// end rolls back, once.
func (s *session) end(tx *sql.Tx, cause error) error {
	if !s.ending.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	outcome, err := rollback(tx)
	if outcome == txscope.Unknown {
		cause = err
	}
	s.finish(outcome, cause)
	return err
}

// rollback rolls back and says what came of it. The transaction is rolled back
// even when the connection broke, as no COMMIT was sent. It is open what
// happened when somebody else ended it, and when the database itself refuses,
// as SQLite does when there is no transaction any more.
func rollback(tx *sql.Tx) (txscope.Outcome, error) {
	err := tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) || isRefusal(err) {
		return txscope.Unknown, err
	}
	return txscope.RolledBack, err
}

// finish forgets the transaction and runs the callbacks. The connection is back
// in the pool.
func (s *session) finish(outcome txscope.Outcome, cause error) {
	s.cancel()
	s.cleanup.Stop()
	sessions.remove(s)
	close(s.ended)
	s.scope.Finish(s.ctx, outcome, cause)
}

// lost ends a session whose *sql.Tx was collected: it was ended, but not by us.
func (s *session) lost() {
	if s.ending.CompareAndSwap(false, true) {
		s.unwatch()
		s.finish(txscope.Unknown, sql.ErrTxDone)
	}
}

func doomedError(cause error) error {
	return fmt.Errorf("outbox: the transaction was rolled back before COMMIT: %w", cause)
}

package outboxbun

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// BeforeQuery implements [bun.QueryHook]. BEGIN gets the context that bun keeps
// in the transaction.
func (h *hook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if event.IQuery != nil {
		return ctx
	}
	switch event.Query {
	case "BEGIN":
		if ctx.Err() == nil {
			return h.newSession(ctx)
		}
	case "COMMIT":
		if s := h.session(ctx); s != nil {
			s.beforeCommit(ctx)
		}
	case "ROLLBACK":
		if s := h.session(ctx); s != nil {
			s.beforeRollback()
		}
	default:
		if len(event.QueryArgs) == 1 {
			if q, ok := event.QueryArgs[0].(*question); ok {
				q.hook, q.session = h, h.session(ctx)
				return ctx
			}
		}
		if s := h.session(ctx); s != nil && !s.Ending() {
			s.Scope().Verify(ctx) // a savepoint would begin another transaction on SQLite
		}
	}
	return ctx
}

// AfterQuery implements [bun.QueryHook].
func (h *hook) AfterQuery(ctx context.Context, event *bun.QueryEvent) {
	if event.IQuery == nil {
		// A result means that it was a statement of the caller's, and not bun's own
		// way to begin and end a transaction.
		statement := event.Result != nil
		switch event.Query {
		case "BEGIN":
			h.afterBegin(ctx, event, statement)
			return
		case "COMMIT", "ROLLBACK":
			s := h.session(ctx)
			switch {
			case s == nil:
			case statement:
				s.resume() // to be ended by bun's own Commit or Rollback
			case event.Query == "COMMIT":
				s.afterCommit(event.Err)
				return
			default:
				s.afterRollback(event.Err)
				return
			}
		}
	}
	h.observe(ctx, event)
}

func (h *hook) afterBegin(ctx context.Context, event *bun.QueryEvent, statement bool) {
	s := h.session(ctx)
	if s == nil || s.begun.Load() {
		return // the context had ended before; at most it carries an outer transaction
	}
	if event.Err == nil && !statement {
		s.begin()
		return
	}
	s.Lost()
	if statement {
		h.observe(s.life.parent, event) // on MySQL it commits what is open
	}
}

// observe follows a statement that may have run in a transaction. Its context
// says in which, as far as the caller gave it the right one: nobody can tell
// whether it ran in that transaction, on another connection, or in one that was
// begun within.
func (h *hook) observe(ctx context.Context, event *bun.QueryEvent) {
	s := h.session(ctx)
	if s != nil && s.Ending() {
		s = nil // a context that outlived its transaction
	}
	if event.Err != nil {
		h.suspect(s, event.Err)
	}
	switch event.IQuery.(type) {
	case *bun.SelectQuery, *bun.InsertQuery, *bun.UpdateQuery, *bun.DeleteQuery:
		return // these do not control transactions
	}
	op := txscope.Parse(event.Query).Op
	if s == nil {
		h.stray(op)
		return
	}
	if s.entangled.Load() {
		h.stray(op)
	}
	switch op {
	case txscope.None:
		s.Scope().Observe(ctx, event.Query, nil) // several in one; suspect has seen the error
	case txscope.Savepoint, txscope.Release:
		s.Scope().Observe(ctx, event.Query, event.Err)
	case txscope.RollbackTo:
		if s.entangled.Load() {
			s.Scope().UnclearSince(event.Query)
			return
		}
		s.Scope().Observe(ctx, event.Query, event.Err)
	case txscope.Rollback:
		s.Scope().Unclear(txscope.RolledBack, errRollback)
	case txscope.Commit:
		s.Scope().Unclear(txscope.Unknown, errCommit)
	case txscope.Begin, txscope.ImplicitCommit:
		if h.dialect == txscope.MySQL {
			s.Scope().Unclear(txscope.Unknown, errCommit)
		}
	}
}

var (
	errCommit   = errors.New("a statement that commits")
	errRollback = errors.New("a ROLLBACK statement")
)

// stray takes note of a statement in a transaction that nobody can name.
func (h *hook) stray(op txscope.Op) {
	switch op {
	case txscope.RollbackTo, txscope.Rollback, txscope.Commit:
		h.strayRollbacks.Add(1)
		h.strayErrors.Add(1)
	case txscope.Begin, txscope.ImplicitCommit:
		if h.dialect == txscope.MySQL {
			h.strayRollbacks.Add(1)
			h.strayErrors.Add(1)
		}
	case txscope.None, txscope.Savepoint, txscope.Release:
	}
}

// suspect takes note of an error that may have ended the transaction.
func (h *hook) suspect(s *session, err error) {
	mayEnd := h.dialect == txscope.SQLite || txscope.EndedByServer(err)
	if mayEnd && (s == nil || s.entangled.Load()) {
		h.strayErrors.Add(1)
	}
	switch {
	case s == nil:
	case txscope.EndedByServer(err):
		s.Scope().Suspect(txscope.RolledBack, err) // it may have been another transaction's
	default:
		s.Scope().ObserveError(err)
	}
}

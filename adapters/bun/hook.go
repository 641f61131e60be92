package outboxbun

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/outbox/txscope"
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
			}
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

// observe follows a statement that may have run in a transaction.
func (h *hook) observe(ctx context.Context, event *bun.QueryEvent) {
	s := h.session(ctx)
	if event.Err != nil {
		h.suspect(s, event.Err)
	}
	switch event.IQuery.(type) {
	case *bun.SelectQuery, *bun.InsertQuery, *bun.UpdateQuery, *bun.DeleteQuery:
		return // these do not control transactions
	}
	op := txscope.Parse(event.Query).Op
	switch {
	case op == txscope.None:
	case s != nil:
		s.Scope().Observe(ctx, event.Query, event.Err)
	case op == txscope.RollbackTo || op == txscope.Rollback:
		h.strayRollbacks.Add(1)
	}
}

// suspect takes note of an error that may have ended the transaction.
func (h *hook) suspect(s *session, err error) {
	switch {
	case s == nil:
		if h.dialect == txscope.SQLite || txscope.EndedByServer(err) {
			h.strayErrors.Add(1)
		}
	case txscope.EndedByServer(err):
		s.Scope().Suspect(err) // it may have been another transaction's
	default:
		s.Scope().ObserveError(err)
	}
}

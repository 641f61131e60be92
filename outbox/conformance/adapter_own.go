package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

// ownCallbacks are the callbacks that the suite registered with the adapter's own AfterCommit and
// AfterRollback, beside its writes. The callbacks of an event run as the hooks of the writer do.
type ownCallbacks struct {
	mu                    sync.Mutex
	follows               []string // events
	committed, rolledBack []string
}

// follow registers callbacks beside the write of an event.
func (s *adapterSuite) follow(ctx context.Context, tx any, id string) {
	s.t.Helper()
	err := s.AfterCommit(ctx, tx, func(context.Context) { s.own.note(&s.own.committed, id) })
	if s.unmanaged && errors.Is(err, outbox.ErrUnmanagedTransaction) {
		return // the adapter does not see the end of the transaction
	}
	s.ok("AfterCommit", err)
	s.ok("AfterRollback", s.AfterRollback(ctx, tx, func(_ context.Context, cause error) {
		s.own.note(&s.own.rolledBack, fmt.Sprintf("%s, unknown: %v", id, errors.Is(cause, outbox.ErrOutcomeUnknown)))
	}))
	s.own.note(&s.own.follows, id)
}

func (o *ownCallbacks) note(list *[]string, note string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*list = append(*list, note)
}

// same reports whether the callbacks ran for the events for which the writer's hooks ran, and in the
// same order.
func (s *adapterSuite) same() bool {
	committed, rolledBack := s.calls.Committed(), s.calls.RolledBack()
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	var wantCommitted, wantRolledBack []string
	for _, env := range committed {
		if slices.Contains(s.own.follows, env.EventID) {
			wantCommitted = append(wantCommitted, env.EventID)
		}
	}
	for _, r := range rolledBack {
		if slices.Contains(s.own.follows, r.Envelope.EventID) {
			wantRolledBack = append(wantRolledBack, fmt.Sprintf("%s, unknown: %v", r.Envelope.EventID, errors.Is(r.Cause, outbox.ErrOutcomeUnknown)))
		}
	}
	return slices.Equal(s.own.committed, wantCommitted) && slices.Equal(s.own.rolledBack, wantRolledBack)
}

// wantSameCallbacks checks, when the test ends, that the adapter's callbacks agree with the writer's
// hooks.
func (s *adapterSuite) wantSameCallbacks() {
	if !s.t.Failed() && !s.settle(s.same) {
		s.t.Errorf("AfterCommit ran for %v and AfterRollback for %v; the hooks of the writer ran for %v and %v",
			s.own.committed, s.own.rolledBack, s.committed(), s.rolledBack())
	}
}

var adapterOwnTests = []adapterTest{
	{name: "OfTheTransactionOfTheCaller", run: func(s *adapterSuite) {
		for _, end := range []struct {
			with func(tx any) error
			want string
		}{{s.Commit, "commit"}, {s.Rollback, "rollback"}} {
			tx, notes := s.begin(s.ctx), make(chan string, 4)
			s.ok("AfterCommit", s.AfterCommit(s.ctx, tx, func(context.Context) { notes <- "commit" }))
			s.ok("AfterRollback", s.AfterRollback(s.ctx, tx, func(context.Context, error) { notes <- "rollback" }))
			if len(notes) > 0 {
				s.t.Error("a callback ran before the end")
			}
			s.ok("ending the transaction", end.with(tx))
			if got := <-notes; got != end.want {
				s.t.Errorf("the callback of %s ran; want %s", got, end.want)
			}
		}
	}},
	{name: "AQueryInACallback", run: func(s *adapterSuite) {
		s.Pool.SetMaxOpenConns(1)
		answer := make(chan error, 1)
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			return s.AfterCommit(ctx, tx, func(ctx context.Context) { answer <- s.queryIn(ctx) })
		}))
		s.ok("a query in the callback", <-answer)
	}},
	{name: "APanicIsContained", run: func(s *adapterSuite) {
		ran := make(chan struct{})
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.ok("AfterCommit", s.AfterCommit(ctx, tx, func(context.Context) { panic(errSuite) }))
			return s.AfterCommit(ctx, tx, func(context.Context) { close(ran) })
		}))
		<-ran
	}},
	{name: "Refused", run: func(s *adapterSuite) {
		refused := func(tx any, target error) {
			s.t.Helper()
			wantError(s.t, "AfterCommit", s.AfterCommit(s.ctx, tx, func(context.Context) { s.t.Error("AfterCommit ran") }), target)
			wantError(s.t, "AfterRollback", s.AfterRollback(s.ctx, tx, func(context.Context, error) { s.t.Error("AfterRollback ran") }), target)
		}
		over := s.begin(s.ctx)
		s.ok("Commit", s.Commit(over))
		refused(over, outbox.ErrNoTransaction)
		refused(s.another().begin(s.ctx), outbox.ErrForeignTransaction)
		unmanaged := s.beginUnmanaged()
		refused(unmanaged, outbox.ErrUnmanagedTransaction)
		s.ok("Rollback", s.Rollback(unmanaged))
		tx := s.begin(s.ctx)
		var field *outbox.FieldError
		for _, err := range []error{s.AfterCommit(s.ctx, tx, nil), s.AfterRollback(s.ctx, tx, nil)} {
			if !errors.As(err, &field) {
				s.t.Errorf("a nil function: %v; want an *outbox.FieldError", err)
			}
		}
	}},
}

package conformance

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterCallbackTests = []adapterTest{
	{name: "UsesTheOnlyConnection", run: func(s *adapterSuite) {
		s.db.SetMaxOpenConns(1)
		var calls atomic.Int32
		query := func(ctx context.Context) {
			var n int
			if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM suite_event").Scan(&n); err != nil {
				s.t.Errorf("a query in a callback: %v", err)
			}
			calls.Add(1)
		}
		for _, result := range []error{nil, errSuite} {
			err := s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
				scope := s.scope(ctx)
				s.ok("AfterCommit", scope.AfterCommit(query))
				s.ok("AfterRollback", scope.AfterRollback(func(ctx context.Context, _ error) { query(s.within(ctx)) }))
				return result
			})
			wantError(s.t, "RunInTx", err, result)
		}
		s.settle(func() bool { return calls.Load() == 2 })
		if n := calls.Load(); n != 2 {
			s.t.Errorf("%d of 2 callbacks ran", n)
		}
	}},
	{name: "UsesTheOnlyConnectionAfterALeak", run: func(s *adapterSuite) {
		s.db.SetMaxOpenConns(1)
		ctx, cancel := context.WithCancel(s.ctx)
		txCtx, _, err := s.Begin(ctx, nil)
		s.ok("Begin", err)
		answer := make(chan error, 1)
		s.ok("AfterRollback", s.scope(txCtx).AfterRollback(func(ctx context.Context, _ error) {
			var n int
			answer <- s.db.QueryRowContext(s.within(ctx), "SELECT COUNT(*) FROM suite_event").Scan(&n)
		}))
		cancel()
		s.ok("a query in the callback", <-answer)
	}},
	{name: "BeginsATransaction", run: func(s *adapterSuite) {
		s.db.SetMaxOpenConns(1)
		var outer string
		inner := make(chan string, 1)
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			outer = s.write(ctx, tx)
			return s.scope(ctx).AfterCommit(func(ctx context.Context) {
				var id string
				// Also with the context of the transaction that is over.
				if err := s.RunInTx(ctx, func(ctx context.Context, _ any) (err error) {
					id, err = s.writer.Write(ctx, s.event())
					return err
				}); err != nil {
					s.t.Errorf("RunInTx in a callback: %v", err)
				}
				inner <- id
			})
		}))
		s.settle(func() bool { return len(inner) > 0 })
		if len(inner) == 0 {
			s.t.Fatal("the callback did not run")
		}
		inside := <-inner
		s.wantCalls([]string{outer, inside}, nil)
		s.rows(outer, inside)
	}},
	{name: "RunOnceAndInOrder", run: func(s *adapterSuite) {
		for _, result := range []error{nil, errSuite} {
			var mu sync.Mutex
			var got, want []string
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, what)
			}
			noted := func() []string {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(got)
			}
			kind := "commit"
			if result != nil {
				kind = "rollback"
			}
			wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
				for i := range 5 {
					name := string(rune('a' + i))
					s.ok("AfterCommit", s.scope(ctx).AfterCommit(func(context.Context) { note("commit " + name) }))
					s.ok("AfterRollback", s.scope(ctx).AfterRollback(func(_ context.Context, _ error) {
						note("rollback " + name)
					}))
					want = append(want, kind+" "+name)
				}
				return result
			}), result)
			s.settle(func() bool { return len(noted()) >= len(want) })
			if got := noted(); !slices.Equal(got, want) {
				s.t.Errorf("callbacks ran as %v; want %v", got, want)
			}
		}
	}},
	{name: "PanicIsContained", run: func(s *adapterSuite) {
		var id string
		var ran atomic.Bool
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.ok("AfterCommit", s.scope(ctx).AfterCommit(func(context.Context) { panic(errSuite) }))
			id = s.write(ctx, tx)
			return s.scope(ctx).AfterCommit(func(context.Context) { ran.Store(true) })
		}))
		s.wantCalls([]string{id}, nil)
		s.settle(ran.Load)
		if !ran.Load() {
			s.t.Error("a callback behind one that panicked did not run")
		}
	}},
	{name: "GoexitIsContained", run: func(s *adapterSuite) {
		var a, b string
		first := true
		s.calls.during = func(context.Context) {
			if first {
				first = false
				runtime.Goexit()
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
				a, b = s.write(ctx, tx), s.write(ctx, tx)
				return nil
			})
		}()
		<-done
		s.wantCalls([]string{a, b}, nil)
		s.rows(a, b)
	}},
	{name: "RunBeforeTheTransactorReturns", run: func(s *adapterSuite) {
		var kept, undone string
		write := func(ctx context.Context, id *string, result error) error {
			return outbox.InTx(ctx, s, func(ctx context.Context) (err error) {
				*id, err = s.writer.Write(ctx, s.event())
				s.ok("Write", err)
				return result
			})
		}
		s.ok("InTx", write(s.ctx, &kept, nil))
		if got := s.calls.committed(); !slices.Equal(got, []string{kept}) {
			s.t.Errorf("AfterCommit ran for %v when InTx returned; want %s", got, kept)
		}
		wantError(s.t, "InTx", write(s.ctx, &undone, errSuite), errSuite)
		if got := s.calls.rolledBack(); !slices.Equal(got, []string{undone}) {
			s.t.Errorf("AfterRollback ran for %v when InTx returned; want %s", got, undone)
		}
	}},
	{name: "OnCommitRunsWithinCommit", run: func(s *adapterSuite) {
		var within atomic.Int32
		for _, result := range []error{nil, errSuite} {
			wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
				s.ok("OnCommit", s.scope(ctx).OnCommit(func() { panic(errSuite) }))
				s.ok("OnCommit", s.scope(ctx).OnCommit(func() {
					if s.db.Stats().InUse == 0 {
						s.t.Error("OnCommit ran when the connection was free")
					}
					within.Add(1)
				}))
				return result
			}), result)
		}
		if n := within.Load(); n != 1 {
			s.t.Errorf("OnCommit ran %d times for a commit and a rollback", n)
		}
	}},
	{name: "OfASavepointUsesTheOnlyConnection", run: func(s *adapterSuite) {
		s.db.SetMaxOpenConns(1)
		answer := make(chan error, 1)
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) error {
			wantError(s.t, "the inner InTx", outbox.InTx(ctx, s, func(ctx context.Context) error {
				s.ok("AfterRollback", s.scope(ctx).AfterRollback(func(ctx context.Context, _ error) {
					var n int
					answer <- s.db.QueryRowContext(s.within(ctx), "SELECT COUNT(*) FROM suite_event").Scan(&n)
				}))
				return errSuite
			}), errSuite)
			return nil
		}))
		s.ok("a query in the callback", <-answer)
	}},
	{name: "RegisteringAfterTheEnd", run: func(s *adapterSuite) {
		var scope outbox.TxScope
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			scope = s.scope(ctx)
			if !scope.Active() {
				s.t.Error("the scope of an open transaction is not active")
			}
			return nil
		}))
		if scope.Active() {
			s.t.Error("the scope is active after the commit")
		}
		wantError(s.t, "AfterCommit", scope.AfterCommit(func(context.Context) { s.t.Error("ran") }), outbox.ErrNoTransaction)
		wantError(s.t, "AfterRollback", scope.AfterRollback(func(context.Context, error) { s.t.Error("ran") }), outbox.ErrNoTransaction)
		if _, err := scope.ExecContext(s.ctx, "SELECT 1"); err == nil {
			s.t.Error("the scope ran a statement after the commit")
		}
	}},
	{name: "ScopeIsTheTransactions", run: func(s *adapterSuite) {
		wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			scope := s.scope(ctx)
			if scope.Source() != s.writer.Source() {
				s.t.Errorf("the scope's source is a %T", scope.Source())
			}
			_, err := scope.ExecContext(ctx, "INSERT INTO suite_event (id) VALUES ('raw')")
			s.ok("a statement through the scope", err)
			return errSuite
		}), errSuite)
		s.rows()
	}},
}

// scope is the scope of the adapter's transaction in ctx.
func (s *adapterSuite) scope(ctx context.Context) outbox.TxScope {
	s.t.Helper()
	scope, ok := outbox.ScopeFromContext(ctx, s.writer.Source())
	if !ok {
		s.t.Fatal("the context carries no scope of the adapter's pool")
	}
	return scope
}

// within ends a callback's context, which has no end of its own, with the test's.
func (s *adapterSuite) within(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx
}

package conformance

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterCallbackTests = []adapterTest{
	{name: "UsesTheOnlyConnection", run: func(s *adapterSuite) {
		s.Pool.SetMaxOpenConns(1)
		var calls atomic.Int32
		query := func(ctx context.Context) {
			if err := s.queryIn(ctx); err != nil {
				s.t.Errorf("a query in a callback: %v", err)
			}
			calls.Add(1)
		}
		for _, result := range []error{nil, errSuite} {
			wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
				s.ok("AfterCommit", s.scope(ctx).AfterCommit(query))
				s.ok("AfterRollback", s.scope(ctx).AfterRollback(func(ctx context.Context, _ error) { query(ctx) }))
				return result
			}), result)
		}
		s.eventually("both callbacks ran", func() bool { return calls.Load() == 2 })
	}},
	{name: "UsesTheOnlyConnectionAfterALeak", contextEnds: true, run: func(s *adapterSuite) {
		s.Pool.SetMaxOpenConns(1)
		ctx, cancel := context.WithCancel(s.ctx)
		txCtx, _, err := s.Begin(ctx, nil)
		s.ok("Begin", err)
		answer := make(chan error, 1)
		s.ok("AfterRollback", s.scope(txCtx).AfterRollback(func(ctx context.Context, _ error) { answer <- s.queryIn(ctx) }))
		cancel()
		s.ok("a query in the callback", <-answer)
	}},
	{name: "BeginsATransaction", run: func(s *adapterSuite) {
		s.Pool.SetMaxOpenConns(1)
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "outer")
			return s.scope(ctx).AfterCommit(func(ctx context.Context) {
				// Also with the context of the transaction that is over.
				if err := s.RunInTx(ctx, func(ctx context.Context, _ any) error {
					_, err := s.writer.Write(ctx, suiteEvent("inner"))
					return err
				}); err != nil {
					s.t.Errorf("RunInTx in a callback: %v", err)
				}
			})
		}))
		s.wantEnded("outer inner", "")
	}},
	{name: "RunOnceAndInOrder", run: func(s *adapterSuite) {
		for want, result := range map[string]error{
			"commit a, commit b, commit c":       nil,
			"rollback a, rollback b, rollback c": errSuite,
		} {
			notes := make(chan string, 12)
			wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
				for _, name := range []string{"a", "b", "c"} {
					s.ok("AfterCommit", s.scope(ctx).AfterCommit(func(context.Context) { notes <- "commit " + name }))
					s.ok("AfterRollback", s.scope(ctx).AfterRollback(func(context.Context, error) { notes <- "rollback " + name }))
				}
				return result
			}), result)
			s.eventually("three callbacks ran", func() bool { return len(notes) >= 3 })
			got := <-notes
			for len(notes) > 0 {
				got += ", " + <-notes
			}
			if got != want {
				s.t.Errorf("callbacks ran as %q; want %q", got, want)
			}
		}
	}},
	{name: "PanicIsContained", run: func(s *adapterSuite) {
		var ran atomic.Bool
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.ok("AfterCommit", s.scope(ctx).AfterCommit(func(context.Context) { panic(errSuite) }))
			s.write(ctx, tx, "a")
			return s.scope(ctx).AfterCommit(func(context.Context) { ran.Store(true) })
		}))
		s.wantEnded("a", "")
		s.eventually("the callback after one that panicked ran", ran.Load)
	}},
	{name: "GoexitIsContained", run: func(s *adapterSuite) {
		first := true
		s.during = func(context.Context) {
			if first {
				first = false
				runtime.Goexit()
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
				s.write(ctx, tx, "a", "b")
				return nil
			})
		}()
		<-done
		s.wantEnded("a b", "")
	}},
	{name: "AtCommitRunsWithinCommit", run: func(s *adapterSuite) {
		var ran atomic.Int32
		for _, result := range []error{nil, errSuite} {
			wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
				s.ok("AtCommit", s.scope(ctx).AtCommit(func() { panic(errSuite) }))
				s.ok("AtCommit", s.scope(ctx).AtCommit(func() {
					if s.Pool.Stats().InUse == 0 {
						s.t.Error("AtCommit ran when the connection was free")
					}
					ran.Add(1)
				}))
				return result
			}), result)
		}
		if n := ran.Load(); n != 1 {
			s.t.Errorf("AtCommit ran %d times for a commit and a rollback", n)
		}
	}},
	{name: "OfASavepointUsesTheOnlyConnection", run: func(s *adapterSuite) {
		s.Pool.SetMaxOpenConns(1)
		answer := make(chan error, 1)
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) error {
			wantError(s.t, "the inner InTx", outbox.InTx(ctx, s, func(ctx context.Context) error {
				s.ok("AfterRollback", s.scope(ctx).AfterRollback(func(ctx context.Context, _ error) { answer <- s.queryIn(ctx) }))
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
		wantError(s.t, "AfterCommit", scope.AfterCommit(func(context.Context) { s.t.Error("AfterCommit ran") }), outbox.ErrNoTransaction)
		wantError(s.t, "AfterRollback", scope.AfterRollback(func(context.Context, error) { s.t.Error("AfterRollback ran") }), outbox.ErrNoTransaction)
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

// queryIn runs a query with a callback's context. The context does not end by itself, so queryIn
// ends it with the test.
func (s *adapterSuite) queryIn(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	var n int
	return s.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM suite_event").Scan(&n)
}

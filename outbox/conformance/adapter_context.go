package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterContextTests = []adapterTest{
	{name: "CancelledBefore", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		_, err := s.BeginTx(ctx)
		wantError(s.t, "BeginTx", err, context.Canceled)
		wantError(s.t, "RunInTx", s.RunInTx(ctx, func(context.Context, any) error {
			s.t.Error("RunInTx ran the function")
			return nil
		}), context.Canceled)
	}},
	{name: "CancelledWhileBeginWaits", run: func(s *adapterSuite) {
		s.Pool.SetMaxOpenConns(1)
		conn, err := s.DB.Conn(s.ctx)
		s.ok("taking the only connection", err)
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithCancel(s.ctx)
		result := make(chan error, 1)
		go func() {
			_, err := s.BeginTx(ctx)
			result <- err
		}()
		s.eventually("BeginTx waits for a connection", func() bool { return s.Pool.Stats().WaitCount > 0 })
		cancel()
		wantError(s.t, "BeginTx", <-result, context.Canceled)
	}},
	{name: "CancelledAndFunctionReturnedNil", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		if err := s.RunInTx(ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			cancel()
			return nil
		}); err == nil {
			s.t.Error("RunInTx returned nil though the context had ended")
		}
		s.wantEnded("", "a")
	}},
	{name: "CancelledBeforeCommit", contextEnds: true, run: func(s *adapterSuite) {
		s.commitFails(s.beginCancelled("a"))
		s.wantEnded("", "a")
	}},
	{name: "CancelledBetweenStatements", contextEnds: true, run: func(s *adapterSuite) {
		tx := s.beginCancelled("a")
		// These statements may run before the rollback.
		_ = s.Exec(s.ctx, tx, "INSERT INTO suite_row (id, n) VALUES (3, 0)")
		_, _ = s.Write(s.ctx, tx, suiteEvent("b"))
		s.commitFails(tx)
		s.eventually("AfterRollback ran", func() bool { return slices.Contains(s.rolledBack(), "a") })
		s.wantDefinite("a")
		s.wantConnectionsFree()
		s.rows()
	}},
	{name: "CancelledAfterCommit", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		tx := s.begin(ctx, "a")
		s.ok("Commit", s.Commit(tx))
		cancel()
		s.wantConnectionsFree()
		s.wantEnded("a", "")
	}},
	{name: "LeakedTransactionEndsWithItsContext", contextEnds: true, run: func(s *adapterSuite) {
		s.beginCancelled("a")
		s.wantEnded("", "a")
		s.wantConnectionsFree()
	}},
	{name: "DeadlinePasses", run: func(s *adapterSuite) {
		ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
		defer cancel()
		if err := s.RunInTx(ctx, func(ctx context.Context, tx any) error {
			if _, err := s.Write(ctx, tx, suiteEvent("a")); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}); err == nil {
			s.t.Error("RunInTx returned nil though the deadline had passed")
		}
		s.wantConnectionsFree()
		if ids := s.committed(); len(ids) > 0 {
			s.t.Errorf("AfterCommit ran for %v", ids)
		}
		s.rows()
	}},
	{name: "CallbacksOutliveTheContext", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		var checked atomic.Bool
		s.during = func(ctx context.Context) {
			cancel()
			if ctx.Err() != nil {
				s.t.Errorf("the callback's context ended: %v", ctx.Err())
			}
			checked.Store(true)
		}
		s.ok("RunInTx", s.RunInTx(ctx, s.writing("a", nil)))
		s.eventually("AfterCommit ran", checked.Load)
	}},
	{name: "InnerContextEnds", run: func(s *adapterSuite) {
		var inner error
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			innerCtx, cancel := context.WithCancel(ctx)
			inner = s.RunInTx(innerCtx, func(ctx context.Context, tx any) error {
				s.write(ctx, tx, "b")
				cancel()
				return nil
			})
			return nil
		}))
		s.wantTruth("a", "b")
		if !s.FrameworkSavepoints {
			wantError(s.t, "the inner RunInTx", inner, context.Canceled)
			s.rows("a")
		}
	}},
	{name: "InnerContextEndsInTransactor", run: func(s *adapterSuite) {
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) error {
			s.ok("Write", s.writingAmbient("a", nil)(ctx))
			inner, cancel := context.WithCancel(ctx)
			wantError(s.t, "the inner InTx", outbox.InTx(inner, s, func(ctx context.Context) error {
				defer cancel()
				return s.writingAmbient("b", nil)(ctx)
			}), context.Canceled)
			return nil
		}))
		s.wantEnded("a", "b")
	}},
	{name: "StatementEndsWithTheTransactionsContext", contextEnds: true, run: func(s *adapterSuite) {
		other, cancel := context.WithCancel(s.ctx)
		defer cancel()
		for with, own := range map[string]func(ofTx context.Context) context.Context{
			"the transaction's context": func(ofTx context.Context) context.Context { return ofTx },
			"another context":           func(context.Context) context.Context { return other },
			"no context":                func(context.Context) context.Context { return context.Background() },
		} {
			s.withDeadline(func(ctx context.Context) error {
				tx, err := s.BeginTx(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = s.Rollback(tx) }()
				if _, err := s.Write(ctx, tx, suiteEvent("")); err != nil {
					return err
				}
				if !s.interrupts(own(ctx), tx) {
					s.t.Errorf("a statement with %s went on when the transaction's context ended", with)
				}
				return nil
			})
			s.wantConnectionsFree()
			s.rows()
		}
		s.eventually("AfterRollback ran for three transactions", func() bool { return len(s.rolledBack()) >= 3 })
		if committed := s.committed(); len(committed) > 0 {
			s.t.Errorf("AfterCommit ran for %v", committed)
		}
	}},
	// A followed pool behaves as a plain pool.
	{name: "StatementEndsWithItsOwnContext", run: func(s *adapterSuite) {
		began := map[bool]func(ctx context.Context) (tx any, err error){true: s.BeginTx, false: s.Unmanaged}
		interrupted := map[bool]bool{}
		for followed, begin := range began {
			tx, err := begin(s.ctx)
			s.ok("beginning a transaction", err)
			ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
			interrupted[followed] = s.interrupts(ctx, tx)
			cancel()
			_ = s.Rollback(tx)
		}
		if interrupted[true] != interrupted[false] {
			s.t.Errorf("the end of a statement's context interrupts it on a followed pool: %t; on a plain pool: %t", interrupted[true], interrupted[false])
		}
		s.wantConnectionsFree()
	}},
	{name: "CancelledDuringCommit", on: []Dialect{Postgres}, run: cancelledDuringCommit},
}

// beginCancelled is begin with a context that has ended since.
func (s *adapterSuite) beginCancelled(id string) any {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	return s.begin(ctx, id)
}

// withDeadline runs fn with a deadline that passes while fn runs. fn returns an error when the
// deadline passed too early, and then runs again with a later deadline. A cancelled context would
// not do, because bun's pgdriver ignores other ends of a context.
func (s *adapterSuite) withDeadline(fn func(ctx context.Context) error) {
	s.t.Helper()
	for timeout := 300 * time.Millisecond; ; timeout *= 2 {
		ctx, cancel := context.WithTimeout(s.ctx, timeout)
		err := fn(ctx)
		early := ctx.Err() != nil // err may be the library's, such as that the transaction is over
		cancel()
		if err == nil {
			return
		}
		if timeout > 4*time.Second || !early {
			s.t.Fatalf("beginning a transaction and writing: %v", err)
		}
	}
}

// slowStatements take 8 seconds or more.
var slowStatements = map[Dialect]string{
	Postgres: "SELECT pg_sleep(8)",
	MySQL:    "SELECT SLEEP(8)",
	SQLite:   "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000000) SELECT COUNT(*) FROM n",
}

// interrupts runs a slow statement and reports whether it failed early.
func (s *adapterSuite) interrupts(ctx context.Context, tx any) bool {
	began := time.Now()
	err := s.Exec(ctx, tx, slowStatements[s.Dialect])
	return err != nil && time.Since(began) < 7500*time.Millisecond
}

// cancelledDuringCommit makes COMMIT wait for a lock, in a deferred trigger, and
// ends the context meanwhile.
func cancelledDuringCommit(s *adapterSuite) {
	s.exec(`CREATE FUNCTION suite_slow() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN UPDATE suite_row SET n = n + 1 WHERE id = 1; RETURN NULL; END'`)
	s.exec(`CREATE CONSTRAINT TRIGGER suite_slow AFTER INSERT ON suite_event
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION suite_slow()`)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	tx := s.begin(ctx, "a")

	holder, err := s.DB.BeginTx(s.ctx, nil)
	s.ok("beginning the transaction that holds the lock", err)
	defer func() { _ = holder.Rollback() }()
	var pid int
	s.ok("locking row 1", holder.QueryRowContext(s.ctx, "UPDATE suite_row SET n = 5 WHERE id = 1 RETURNING pg_backend_pid()").Scan(&pid))

	result := make(chan error, 1)
	go func() { result <- s.Commit(tx) }()
	s.eventually("COMMIT waits for the lock", func() (waiting bool) {
		query := fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE %d = ANY (pg_blocking_pids(pid)))", pid)
		s.ok("looking for waiting connections", s.DB.QueryRowContext(s.ctx, query).Scan(&waiting))
		return waiting
	})
	cancel()
	select {
	case err := <-result:
		s.t.Fatalf("Commit was interrupted: %v", err)
	case <-time.After(200 * time.Millisecond): // an interruption would come at once
	}
	s.ok("releasing the lock", holder.Rollback())
	s.ok("Commit", <-result)
	s.wantEnded("a", "")
}

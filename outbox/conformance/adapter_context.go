package conformance

import (
	"context"
	"errors"
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
		if _, err := s.BeginTx(ctx); !errors.Is(err, context.Canceled) {
			s.t.Errorf("BeginTx returned %v; want context.Canceled", err)
		}
		wantError(s.t, "RunInTx", s.RunInTx(ctx, func(context.Context, any) error {
			s.t.Error("RunInTx ran the function")
			return nil
		}), context.Canceled)
	}},
	{name: "CancelledWhileBeginWaits", run: func(s *adapterSuite) {
		s.db.SetMaxOpenConns(1)
		conn, err := s.db.Conn(s.ctx)
		s.ok("taking the only connection", err)
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithCancel(s.ctx)
		result := make(chan error, 1)
		go func() {
			_, err := s.BeginTx(ctx)
			result <- err
		}()
		s.eventually("BeginTx waits for a connection", func() bool { return s.db.Stats().WaitCount > 0 })
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			s.t.Errorf("BeginTx returned %v; want context.Canceled", err)
		}
	}},
	{name: "CancelledAndFunctionReturnedNil", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		var id string
		err := s.RunInTx(ctx, func(ctx context.Context, tx any) error {
			id = s.write(ctx, tx)
			cancel()
			return nil
		})
		if err == nil {
			s.t.Error("RunInTx returned nil though the context had ended")
		}
		s.eventually("AfterRollback ran", func() bool { return len(s.calls.rolledBack()) > 0 })
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "CancelledBeforeCommit", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		tx, err := s.BeginTx(ctx)
		s.ok("BeginTx", err)
		id := s.write(ctx, tx)
		cancel()
		if err := s.Commit(tx); err == nil {
			s.t.Error("Commit returned nil though the context had ended")
		}
		s.eventually("AfterRollback ran", func() bool { return len(s.calls.rolledBack()) > 0 })
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "CancelledBetweenStatements", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		tx, err := s.BeginTx(ctx)
		s.ok("BeginTx", err)
		id := s.write(ctx, tx)
		cancel()
		_ = s.Exec(context.WithoutCancel(ctx), tx, "INSERT INTO suite_row (id, n) VALUES (3, 0)")
		_, err = s.Write(context.WithoutCancel(ctx), tx, s.event())
		if err == nil {
			s.t.Log("the write came before the rollback")
		}
		if err := s.Commit(tx); err == nil {
			s.t.Error("Commit returned nil though the context had ended")
		}
		s.eventually("AfterRollback ran", func() bool { return slices.Contains(s.calls.rolledBack(), id) })
		s.wantDefinite(id)
		s.eventually("the connection is free", func() bool { return s.db.Stats().InUse == 0 })
		s.rows()
	}},
	{name: "EndInterruptsAStatementWithoutContext", on: []Dialect{Postgres, MySQL}, run: func(s *adapterSuite) {
		// A deadline, because pgdriver ignores other ends of a context.
		ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
		defer cancel()
		tx, err := s.BeginTx(ctx)
		if err != nil {
			return // a slow machine
		}
		began := time.Now()
		_ = s.Exec(context.Background(), tx, map[Dialect]string{Postgres: "SELECT pg_sleep(8)", MySQL: "SELECT SLEEP(8)"}[s.dialect])
		if took := time.Since(began); took > 6*time.Second {
			s.t.Errorf("the statement went on for %s after the end of its transaction's context", took)
		}
		_ = s.Rollback(tx)
		s.eventually("the connection is free", func() bool { return s.db.Stats().InUse == 0 })
	}},
	{name: "EndInterruptsAStatementWithAnotherContext", on: []Dialect{Postgres, MySQL}, run: func(s *adapterSuite) {
		ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
		defer cancel()
		tx, err := s.BeginTx(ctx)
		if err != nil {
			return // a slow machine
		}
		own, stop := context.WithCancel(s.ctx)
		defer stop()
		began := time.Now()
		_ = s.Exec(own, tx, map[Dialect]string{Postgres: "SELECT pg_sleep(8)", MySQL: "SELECT SLEEP(8)"}[s.dialect])
		if took := time.Since(began); took > 6*time.Second {
			s.t.Errorf("the statement went on for %s after the end of its transaction's context", took)
		}
		_ = s.Rollback(tx)
		s.eventually("the connection is free", func() bool { return s.db.Stats().InUse == 0 })
	}},
	{name: "DeadlineInterruptsAStatement", on: []Dialect{Postgres, MySQL}, run: func(s *adapterSuite) {
		// In the middle of the statement, or before. It is a deadline, because
		// pgdriver ignores other ends of a context.
		ctx, cancel := context.WithTimeout(s.ctx, 500*time.Millisecond)
		defer cancel()
		var id string
		began := time.Now()
		if err := s.RunInTx(ctx, func(ctx context.Context, tx any) error {
			var err error
			if id, err = s.Write(ctx, tx, s.event()); err != nil {
				return err
			}
			return s.Exec(ctx, tx, map[Dialect]string{Postgres: "SELECT pg_sleep(8)", MySQL: "SELECT SLEEP(8)"}[s.dialect])
		}); err == nil {
			s.t.Error("RunInTx returned nil though the context had ended")
		}
		if took := time.Since(began); took > 6*time.Second {
			s.t.Errorf("the statement went on for %s", took)
		}
		if id != "" {
			s.eventually("AfterRollback ran", func() bool { return len(s.calls.rolledBack()) > 0 })
			s.wantCalls(nil, []string{id})
		}
		s.rows()
	}},
	{name: "CancelledDuringCommit", on: []Dialect{Postgres}, run: cancelledDuringCommit},
	{name: "CancelledAfterCommit", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		tx, err := s.BeginTx(ctx)
		s.ok("BeginTx", err)
		id := s.write(ctx, tx)
		s.ok("Commit", s.Commit(tx))
		cancel()
		s.eventually("the connection is free", func() bool { return s.db.Stats().InUse == 0 })
		s.wantCalls([]string{id}, nil)
		s.rows(id)
	}},
	{name: "LeakedTransactionEndsWithItsContext", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		tx, err := s.BeginTx(ctx)
		s.ok("BeginTx", err)
		id := s.write(ctx, tx)
		cancel()
		s.eventually("AfterRollback ran", func() bool { return len(s.calls.rolledBack()) > 0 })
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.settle(func() bool { return s.db.Stats().InUse == 0 })
		if n := s.db.Stats().InUse; n != 0 {
			s.t.Errorf("%d connections are in use after the callbacks", n)
		}
		s.rows()
	}},
	{name: "DeadlinePasses", run: func(s *adapterSuite) {
		ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
		defer cancel()
		err := s.RunInTx(ctx, func(ctx context.Context, tx any) error {
			if _, err := s.Write(ctx, tx, s.event()); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if err == nil {
			s.t.Error("RunInTx returned nil though the deadline had passed")
		}
		s.eventually("the connection is free", func() bool { return s.db.Stats().InUse == 0 })
		if ids := s.calls.committed(); len(ids) > 0 {
			s.t.Errorf("AfterCommit ran for %v", ids)
		}
		s.rows()
	}},
	{name: "CallbacksOutliveTheContext", run: func(s *adapterSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		var checked atomic.Bool
		s.calls.during = func(ctx context.Context) {
			cancel()
			if ctx.Err() != nil {
				s.t.Errorf("the callback's context ended: %v", ctx.Err())
			}
			checked.Store(true)
		}
		s.ok("RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx)
			return nil
		}))
		s.settle(checked.Load)
		if !checked.Load() {
			s.t.Error("AfterCommit did not run")
		}
	}},
	{name: "InnerContextEnds", run: func(s *adapterSuite) {
		var a, b string
		var inner error
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			a = s.write(ctx, tx)
			innerCtx, cancel := context.WithCancel(ctx)
			inner = s.RunInTx(innerCtx, func(ctx context.Context, tx any) error {
				b = s.write(ctx, tx)
				cancel()
				return nil
			})
			return nil
		}))
		s.truth(a, b)
		if !s.frameworkSavepoints {
			wantError(s.t, "the inner RunInTx", inner, context.Canceled)
			s.rows(a)
		}
	}},
	{name: "InnerContextEndsInTransactor", run: func(s *adapterSuite) {
		var a, b string
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) (err error) {
			a, err = s.writer.Write(ctx, s.event())
			s.ok("Write", err)
			inner, cancel := context.WithCancel(ctx)
			wantError(s.t, "the inner InTx", outbox.InTx(inner, s, func(ctx context.Context) (err error) {
				b, err = s.writer.Write(ctx, s.event())
				cancel()
				return err
			}), context.Canceled)
			return nil
		}))
		s.wantCalls([]string{a}, []string{b})
		s.rows(a)
	}},
}

// cancelledDuringCommit makes COMMIT wait for a lock, in a deferred trigger, and
// ends the context during that.
func cancelledDuringCommit(s *adapterSuite) {
	s.exec(`CREATE FUNCTION suite_slow() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN UPDATE suite_row SET n = n + 1 WHERE id = 1; RETURN NULL; END'`)
	s.exec(`CREATE CONSTRAINT TRIGGER suite_slow AFTER INSERT ON suite_event
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION suite_slow()`)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	tx, err := s.BeginTx(ctx)
	s.ok("BeginTx", err)
	id := s.write(ctx, tx)

	holder, err := s.db.BeginTx(s.ctx, nil)
	s.ok("beginning the transaction that holds the lock", err)
	defer func() { _ = holder.Rollback() }()
	var pid int
	s.ok("locking row 1", holder.QueryRowContext(s.ctx, "UPDATE suite_row SET n = 5 WHERE id = 1 RETURNING pg_backend_pid()").Scan(&pid))

	result := make(chan error, 1)
	go func() { result <- s.Commit(tx) }()
	s.eventually("COMMIT waits for the lock", func() bool {
		var waiting int
		query := fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE %d = ANY (pg_blocking_pids(pid))", pid)
		s.ok("looking for who waits", s.db.QueryRowContext(s.ctx, query).Scan(&waiting))
		return waiting > 0
	})
	cancel()
	select {
	case err := <-result:
		s.t.Fatalf("Commit was interrupted: %v", err)
	case <-time.After(200 * time.Millisecond): // an interruption would come at once
	}
	s.ok("releasing the lock", holder.Rollback())
	s.ok("Commit", <-result)
	s.wantCalls([]string{id}, nil)
	s.rows(id)
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

var errSuite = errors.New("conformance: a failure that the suite made")

var adapterOutcomeTests = []adapterTest{
	{name: "CommitRunsAfterCommit", run: func(s *adapterSuite) {
		tx := s.begin()
		a, b := s.write(s.ctx, tx), s.write(s.ctx, tx)
		s.wantCalls(nil, nil)
		s.ok("Commit", s.Commit(tx))
		s.wantCalls([]string{a, b}, nil)
		s.rows(a, b)
	}},
	{name: "RollbackRunsAfterRollback", run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.ok("Rollback", s.Rollback(tx))
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "RollbackAfterCommitIsHarmless", run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.ok("Commit", s.Commit(tx))
		_ = s.Rollback(tx)
		s.wantCalls([]string{id}, nil)
		s.rows(id)
	}},
	{name: "CommitAfterRollbackFails", run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.ok("Rollback", s.Rollback(tx))
		if err := s.Commit(tx); err == nil {
			s.t.Error("Commit after Rollback returned nil")
		}
		s.wantCalls(nil, []string{id})
	}},
	{name: "RunInTxCommits", run: func(s *adapterSuite) {
		var id string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			id = s.write(ctx, tx)
			return nil
		}))
		s.wantCalls([]string{id}, nil)
		s.rows(id)
	}},
	{name: "RunInTxRollsBackOnError", run: func(s *adapterSuite) {
		var id string
		wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			id = s.write(ctx, tx)
			return errSuite
		}), errSuite)
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "RunInTxRollsBackOnPanic", run: func(s *adapterSuite) {
		var id string
		func() {
			defer func() {
				if r := recover(); r != errSuite { //nolint:errorlint // the very value.
					s.t.Errorf("the panic became %v", r)
				}
			}()
			_ = s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
				id = s.write(ctx, tx)
				panic(errSuite)
			})
		}()
		s.wantCalls(nil, []string{id})
		s.rows()
	}},
	{name: "RunInTxRollsBackOnGoexit", run: func(s *adapterSuite) {
		ids := make(chan string, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
				id, err := s.Write(ctx, tx, s.event())
				if err != nil {
					s.t.Errorf("Write: %v", err)
				}
				ids <- id
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		s.wantCalls(nil, []string{<-ids})
		s.rows()
	}},
	{name: "TransactorCommitsAndRollsBack", run: func(s *adapterSuite) {
		var kept, undone string
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) (err error) {
			kept, err = s.writer.Write(ctx, s.event())
			return err
		}))
		wantError(s.t, "InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) (err error) {
			if undone, err = s.writer.Write(ctx, s.event()); err != nil {
				return err
			}
			return errSuite
		}), errSuite)
		s.wantCalls([]string{kept}, []string{undone})
		s.rows(kept)
	}},
	{name: "WriteAllIsOrdered", run: func(s *adapterSuite) {
		tx := s.begin()
		envs := make([]outbox.Envelope, 25)
		for i := range envs {
			envs[i] = s.event()
			envs[i].EventID = fmt.Sprintf("event-%02d", i)
		}
		ids, err := s.WriteAll(s.ctx, tx, envs)
		s.ok("WriteAll", err)
		s.ok("Commit", s.Commit(tx))
		if len(ids) != len(envs) || ids[0] != "event-00" || ids[24] != "event-24" {
			s.t.Errorf("WriteAll returned %v", ids)
		}
		s.wantCalls(ids, nil)
		s.rows(ids...)
	}},
	{name: "WithoutEventsAsEver", run: func(s *adapterSuite) {
		if s.dialect == SQLite {
			s.db.SetMaxOpenConns(1)
		}
		// Odd, but the caller's decision as long as there is no event.
		steps := []string{"ROLLBACK", "BEGIN", "INSERT INTO suite_row (id, n) VALUES (9, 9)"}
		count := func() (n int) {
			s.ok("counting", s.db.QueryRowContext(s.ctx, "SELECT COUNT(*) FROM suite_row WHERE id = 9").Scan(&n))
			s.exec("DELETE FROM suite_row WHERE id = 9")
			return n
		}
		plain, err := s.db.BeginTx(s.ctx, nil)
		s.ok("BeginTx", err)
		for _, step := range steps {
			_, err := plain.ExecContext(s.ctx, step)
			s.ok(step, err)
		}
		want := plain.Commit()
		rows := count()
		tx := s.begin()
		for _, step := range steps {
			s.run(tx, step)
		}
		if err := s.Commit(tx); (err == nil) != (want == nil) {
			s.t.Errorf("Commit returned %v; without an adapter it is %v", err, want)
		}
		if got := count(); got != rows {
			s.t.Errorf("%d rows were written; without an adapter it is %d", got, rows)
		}
	}},
	{name: "ManyAtOnce", run: func(s *adapterSuite) {
		const workers, each = 8, 25
		if s.dialect == SQLite {
			s.db.SetMaxOpenConns(1) // one writer at a time
		}
		var mu sync.Mutex
		var kept []string
		var wg sync.WaitGroup
		for worker := range workers {
			wg.Go(func() {
				for i := range each {
					var id string
					err := s.RunInTx(s.ctx, func(ctx context.Context, tx any) (err error) {
						if id, err = s.Write(ctx, tx, s.event()); err != nil {
							return err
						}
						if (worker+i)%3 == 0 {
							return errSuite
						}
						return nil
					})
					switch {
					case err == nil:
						mu.Lock()
						kept = append(kept, id)
						mu.Unlock()
					case !errors.Is(err, errSuite):
						s.t.Errorf("RunInTx: %v", err)
					}
				}
			})
		}
		wg.Wait()
		s.rows(kept...)
		s.settle(func() bool { return len(s.calls.committed())+len(s.calls.rolledBack()) == workers*each })
		if c, r := len(s.calls.committed()), len(s.calls.rolledBack()); c != len(kept) || c+r != workers*each {
			s.t.Errorf("%d after-commit and %d after-rollback calls for %d commits among %d", c, r, len(kept), workers*each)
		}
	}},
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

var errSuite = errors.New("conformance: a failure that the suite made")

var adapterOutcomeTests = []adapterTest{
	{name: "CommitRunsAfterCommitAndALaterRollbackIsHarmless", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a", "b")
		s.wantCalls("", "")
		s.ok("Commit", s.Commit(tx))
		s.wantEnded("a b", "")
		_ = s.Rollback(tx)
		s.wantEnded("a b", "")
	}},
	{name: "RollbackRunsAfterRollback", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.ok("Rollback", s.Rollback(tx))
		s.wantEnded("", "a")
		s.commitFails(tx)
		s.wantEnded("", "a")
	}},
	{name: "RunInTxCommitsOrRollsBackOnError", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, s.writing("a", nil)))
		wantError(s.t, "RunInTx", s.RunInTx(s.ctx, s.writing("b", errSuite)), errSuite)
		s.wantEnded("a", "b")
	}},
	{name: "RunInTxRollsBackOnPanic", run: func(s *adapterSuite) {
		func() {
			defer func() {
				if r := recover(); r != errSuite { //nolint:errorlint // the very value.
					s.t.Errorf("the panic became %v", r)
				}
			}()
			_ = s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
				s.write(ctx, tx, "a")
				panic(errSuite)
			})
		}()
		s.wantEnded("", "a")
	}},
	{name: "RunInTxRollsBackOnGoexit", run: func(s *adapterSuite) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
				if _, err := s.Write(ctx, tx, suiteEvent("a")); err != nil {
					s.t.Errorf("Write: %v", err)
				}
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		s.wantEnded("", "a")
	}},
	{name: "TransactorRunsCallbacksBeforeItReturns", run: func(s *adapterSuite) {
		s.ok("InTx", outbox.InTx(s.ctx, s, s.writingAmbient("a", nil)))
		if got := s.committed(); !slices.Equal(got, []string{"a"}) {
			s.t.Errorf("AfterCommit had run for %v when InTx returned; want a", got)
		}
		wantError(s.t, "InTx", outbox.InTx(s.ctx, s, s.writingAmbient("b", errSuite)), errSuite)
		if got := s.rolledBack(); !slices.Equal(got, []string{"b"}) {
			s.t.Errorf("AfterRollback had run for %v when InTx returned; want b", got)
		}
		s.wantEnded("a", "b")
	}},
	{name: "WriteAllIsOrdered", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx)
		var want []string
		var envs []outbox.Envelope
		for i := range 25 {
			want = append(want, fmt.Sprintf("event-%02d", i))
			envs = append(envs, suiteEvent(want[i]))
		}
		ids, err := s.WriteAll(s.ctx, tx, envs)
		s.ok("WriteAll", err)
		s.ok("Commit", s.Commit(tx))
		if !slices.Equal(ids, want) {
			s.t.Errorf("WriteAll returned %v; want %v", ids, want)
		}
		s.wantEnded(strings.Join(want, " "), "")
	}},
	// ROLLBACK and BEGIN as statements are the caller's decision as long as there is no event.
	{name: "TransactionWithoutEventsIsLeftAlone", run: func(s *adapterSuite) {
		if s.Dialect == SQLite {
			s.Pool.SetMaxOpenConns(1)
		}
		steps := []string{"ROLLBACK", "BEGIN", "INSERT INTO suite_row (id, n) VALUES (9, 9)"}
		count := func() (n int) {
			s.ok("counting", s.DB.QueryRowContext(s.ctx, "SELECT COUNT(*) FROM suite_row WHERE id = 9").Scan(&n))
			s.exec("DELETE FROM suite_row WHERE id = 9")
			return n
		}
		plain, err := s.DB.BeginTx(s.ctx, nil)
		s.ok("BeginTx", err)
		for _, step := range steps {
			_, err := plain.ExecContext(s.ctx, step)
			s.ok(step, err)
		}
		want := plain.Commit()
		rows := count()
		tx := s.begin(s.ctx)
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
		if s.Dialect == SQLite {
			s.Pool.SetMaxOpenConns(1) // one writer at a time
		}
		var mu sync.Mutex
		var kept, undone []string
		var wg sync.WaitGroup
		for worker := range workers {
			wg.Go(func() {
				for i := range each {
					id, list, result := fmt.Sprintf("%d-%d", worker, i), &kept, error(nil)
					if (worker+i)%3 == 0 {
						list, result = &undone, errSuite
					}
					if err := s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
						_, err := s.Write(ctx, tx, suiteEvent(id))
						return errors.Join(err, result)
					}); !errors.Is(err, result) {
						s.t.Errorf("RunInTx returned %v; want %v", err, result)
					}
					mu.Lock()
					*list = append(*list, id)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		s.wantCallsInAnyOrder(kept, undone)
		s.rows(kept...)
	}},
}

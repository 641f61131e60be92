package conformance

import (
	"context"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterSavepointTests = []adapterTest{
	{name: "InnerRolledBack", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			wantError(s.t, "the inner RunInTx", s.RunInTx(ctx, s.writing("b", errSuite)), errSuite)
			s.wantCalls("", "b") // at once
			s.write(ctx, tx, "c")
			return nil
		}))
		s.wantEnded("a c", "b")
	}},
	{name: "InnerReleased", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			s.ok("the inner RunInTx", s.RunInTx(ctx, s.writing("b", nil)))
			s.wantCalls("", "") // not before the transaction commits
			return nil
		}))
		s.wantEnded("a b", "")
	}},
	{name: "InnerReleasedOuterRolledBack", run: func(s *adapterSuite) {
		wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			s.ok("the inner RunInTx", s.RunInTx(ctx, s.writing("b", nil)))
			return errSuite
		}), errSuite)
		s.wantEnded("", "a b")
	}},
	{name: "InnerPanics", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			defer func() { _ = recover() }()
			return s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				s.write(ctx, tx, "b")
				panic(errSuite)
			})
		}))
		s.wantEnded("a", "b")
	}},
	// Levels 0 to 5. Level 3 fails and rolls back the levels within it.
	{name: "Deep", run: func(s *adapterSuite) {
		var level func(ctx context.Context, n int) error
		level = func(ctx context.Context, n int) error {
			return s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				s.write(ctx, tx, fmt.Sprint(n))
				if n < 5 {
					if err := level(ctx, n+1); err != nil && n != 2 {
						return err
					}
				}
				if n == 3 {
					return errSuite
				}
				return nil
			})
		}
		s.ok("RunInTx", level(s.ctx, 0))
		s.wantEnded("0 1 2", "3 4 5")
	}},
	{name: "Siblings", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			for _, id := range []string{"1", "3", "5"} {
				s.ok("the inner RunInTx", s.RunInTx(ctx, s.writing(id, nil)))
				wantError(s.t, "the inner RunInTx", s.RunInTx(ctx, s.writing("after-"+id, errSuite)), errSuite)
			}
			return nil
		}))
		s.wantEnded("1 3 5", "after-1 after-3 after-5")
	}},
	{name: "TransactorNests", run: func(s *adapterSuite) {
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) error {
			s.ok("Write", s.writingAmbient("a", nil)(ctx))
			wantError(s.t, "the inner InTx", outbox.InTx(ctx, s, s.writingAmbient("b", errSuite)), errSuite)
			return outbox.InTx(ctx, s, s.writingAmbient("c", nil))
		}))
		s.wantEnded("a c", "b")
	}},
	{name: "RawStatements", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.run(tx, "SAVEPOINT one")
		s.write(s.ctx, tx, "b")
		s.run(tx, "ROLLBACK TO SAVEPOINT one")
		s.wantCalls("", "b")
		s.write(s.ctx, tx, "c")
		s.run(tx, "ROLLBACK TO SAVEPOINT one") // the savepoint is still there
		s.write(s.ctx, tx, "d")
		s.run(tx, "RELEASE SAVEPOINT one")
		s.ok("Commit", s.Commit(tx))
		s.wantEnded("a d", "b c")
	}},
	{name: "RawStatementsInOtherSpellings", run: func(s *adapterSuite) {
		quote := map[Dialect]string{Postgres: `"`, MySQL: "`", SQLite: `"`}[s.Dialect]
		tx := s.begin(s.ctx, "a")
		s.run(tx, "/* traceparent='00-abc' */ savepoint "+quote+"a point"+quote+" ;")
		s.write(s.ctx, tx, "b")
		s.run(tx, "-- why\n\tRollback /* back */ To\n"+quote+"a point"+quote)
		s.wantCalls("", "b")
		s.run(tx, "SavePoint TWO")
		s.write(s.ctx, tx, "c")
		s.run(tx, "ROLLBACK TO two -- the same name")
		s.wantCalls("", "b c")
		s.ok("Commit", s.Commit(tx))
		s.wantEnded("a", "b c")
	}},
	// On PostgreSQL a refused ROLLBACK TO fails the transaction.
	{name: "RefusedRollbackTo", on: []Dialect{MySQL, SQLite}, run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.run(tx, "SAVEPOINT one")
		s.write(s.ctx, tx, "b")
		s.fails(tx, "ROLLBACK TO SAVEPOINT nosuch")
		s.ok("Commit", s.Commit(tx))
		s.wantEnded("a b", "")
	}},
	{name: "RawWithinNested", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			s.run(tx, "SAVEPOINT raw")
			s.ok("the inner RunInTx", s.RunInTx(ctx, s.writing("b", nil)))
			s.run(tx, "ROLLBACK TO SAVEPOINT raw")
			s.write(ctx, tx, "c")
			return nil
		}))
		s.wantEnded("a c", "b")
	}},
}

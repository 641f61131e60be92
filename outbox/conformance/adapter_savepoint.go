package conformance

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterSavepointTests = []adapterTest{
	{name: "InnerRolledBack", run: func(s *adapterSuite) {
		var a, b, c string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			a = s.write(ctx, tx)
			wantError(s.t, "the inner RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				b = s.write(ctx, tx)
				return errSuite
			}), errSuite)
			s.wantCalls(nil, []string{b}) // at once
			c = s.write(ctx, tx)
			return nil
		}))
		s.wantCalls([]string{a, c}, []string{b})
		s.wantDefinite(b)
		s.rows(a, c)
	}},
	{name: "InnerReleased", run: func(s *adapterSuite) {
		var a, b string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			a = s.write(ctx, tx)
			s.ok("the inner RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				b = s.write(ctx, tx)
				return nil
			}))
			s.wantCalls(nil, nil) // not before the transaction commits
			return nil
		}))
		s.wantCalls([]string{a, b}, nil)
		s.rows(a, b)
	}},
	{name: "InnerReleasedOuterRolledBack", run: func(s *adapterSuite) {
		var a, b string
		wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			a = s.write(ctx, tx)
			s.ok("the inner RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				b = s.write(ctx, tx)
				return nil
			}))
			return errSuite
		}), errSuite)
		s.wantCalls(nil, []string{a, b})
		s.rows()
	}},
	{name: "InnerPanics", run: func(s *adapterSuite) {
		var a, b string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			a = s.write(ctx, tx)
			func() {
				defer func() { _ = recover() }()
				_ = s.RunInTx(ctx, func(ctx context.Context, tx any) error {
					b = s.write(ctx, tx)
					panic(errSuite)
				})
			}()
			return nil
		}))
		s.wantCalls([]string{a}, []string{b})
		s.rows(a)
	}},
	{name: "Deep", run: func(s *adapterSuite) {
		// Levels 0 to 5. The third fails and rolls back those below.
		ids := make([]string, 6)
		var level func(ctx context.Context, n int) error
		level = func(ctx context.Context, n int) error {
			return s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				ids[n] = s.write(ctx, tx)
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
		s.wantCalls(ids[:3], ids[3:])
		s.rows(ids[:3]...)
	}},
	{name: "Siblings", run: func(s *adapterSuite) {
		var kept, undone []string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			for i := range 6 {
				_ = s.RunInTx(ctx, func(ctx context.Context, tx any) error {
					id := s.write(ctx, tx)
					if i%2 == 0 {
						kept = append(kept, id)
						return nil
					}
					undone = append(undone, id)
					return errSuite
				})
			}
			return nil
		}))
		s.wantCalls(kept, undone)
		s.rows(kept...)
	}},
	{name: "TransactorNests", run: func(s *adapterSuite) {
		var a, b, c string
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) (err error) {
			a, err = s.writer.Write(ctx, s.event())
			s.ok("Write", err)
			wantError(s.t, "the inner InTx", outbox.InTx(ctx, s, func(ctx context.Context) (err error) {
				b, err = s.writer.Write(ctx, s.event())
				s.ok("Write", err)
				return errSuite
			}), errSuite)
			return outbox.InTx(ctx, s, func(ctx context.Context) (err error) {
				c, err = s.writer.Write(ctx, s.event())
				return err
			})
		}))
		s.wantCalls([]string{a, c}, []string{b})
		s.rows(a, c)
	}},
	{name: "RawStatements", run: func(s *adapterSuite) {
		tx := s.begin()
		a := s.write(s.ctx, tx)
		s.run(tx, "SAVEPOINT one")
		b := s.write(s.ctx, tx)
		s.run(tx, "ROLLBACK TO SAVEPOINT one")
		s.wantCalls(nil, []string{b})
		c := s.write(s.ctx, tx)
		s.run(tx, "ROLLBACK TO SAVEPOINT one") // it is still there
		d := s.write(s.ctx, tx)
		s.run(tx, "RELEASE SAVEPOINT one")
		s.ok("Commit", s.Commit(tx))
		s.wantCalls([]string{a, d}, []string{b, c})
		s.rows(a, d)
	}},
	{name: "RawStatementsInDisguise", run: func(s *adapterSuite) {
		quote := map[Dialect]string{Postgres: `"`, MySQL: "`", SQLite: `"`}[s.dialect]
		tx := s.begin()
		a := s.write(s.ctx, tx)
		s.run(tx, "/* traceparent='00-abc' */ savepoint "+quote+"a point"+quote+" ;")
		b := s.write(s.ctx, tx)
		s.run(tx, "-- why\n\tRollback /* back */ To\n"+quote+"a point"+quote)
		s.wantCalls(nil, []string{b})
		s.run(tx, "SavePoint TWO")
		c := s.write(s.ctx, tx)
		s.run(tx, "ROLLBACK TO two -- the same name")
		s.wantCalls(nil, []string{b, c})
		s.ok("Commit", s.Commit(tx))
		s.wantCalls([]string{a}, []string{b, c})
		s.rows(a)
	}},
	{name: "RefusedRollbackTo", on: []Dialect{MySQL, SQLite}, run: func(s *adapterSuite) {
		// PostgreSQL fails the transaction over it.
		tx := s.begin()
		a := s.write(s.ctx, tx)
		s.run(tx, "SAVEPOINT one")
		b := s.write(s.ctx, tx)
		if err := s.Exec(s.ctx, tx, "ROLLBACK TO SAVEPOINT nosuch"); err == nil {
			s.t.Error("ROLLBACK TO an unknown savepoint succeeded")
		}
		s.ok("Commit", s.Commit(tx))
		s.wantCalls([]string{a, b}, nil)
		s.rows(a, b)
	}},
	{name: "RawWithinNested", run: func(s *adapterSuite) {
		var a, b, c string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			a = s.write(ctx, tx)
			s.run(tx, "SAVEPOINT raw")
			s.ok("the inner RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				b = s.write(ctx, tx)
				return nil
			}))
			s.run(tx, "ROLLBACK TO SAVEPOINT raw")
			c = s.write(ctx, tx)
			return nil
		}))
		s.wantCalls([]string{a, c}, []string{b})
		s.rows(a, c)
	}},
}

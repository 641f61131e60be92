package conformance

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterDatabaseTests = []adapterTest{
	{name: "CommitFails", on: []Dialect{Postgres, SQLite}, run: func(s *adapterSuite) {
		if s.Dialect == SQLite {
			s.Pool.SetMaxOpenConns(1)
			s.exec("PRAGMA foreign_keys = ON")
		}
		s.exec("CREATE TABLE suite_child (id INTEGER NOT NULL REFERENCES suite_row (id) DEFERRABLE INITIALLY DEFERRED)")
		tx := s.begin(s.ctx, "a")
		s.run(tx, "INSERT INTO suite_child (id) VALUES (77)")
		s.commitFails(tx)
		s.wantEnded("", "a")
		tx = s.begin(s.ctx, "b") // on the same connection
		s.ok("Commit", s.Commit(tx))
		s.wantEnded("b", "a")
	}},
	{name: "SwallowedStatementError", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.fails(tx, duplicate)
		if s.Dialect == Postgres {
			s.commitFails(tx)
			s.wantEnded("", "a")
			return
		}
		s.ok("Commit", s.Commit(tx)) // only the statement failed
		s.wantEnded("a", "")
	}},
	{name: "SwallowedStatementErrorInSavepoint", on: []Dialect{Postgres}, run: func(s *adapterSuite) {
		var inner error
		outer := s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			inner = s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				s.write(ctx, tx, "b")
				_ = s.Exec(ctx, tx, duplicate)
				return nil
			})
			return nil
		})
		s.wantTruth("a", "b")
		if s.FrameworkSavepoints {
			if outer == nil && len(s.stored()) < 2 && inner == nil {
				s.t.Error("both RunInTx returned nil for a failed savepoint")
			}
			return
		}
		s.ok("RunInTx", outer)
		if inner == nil {
			s.t.Error("the inner RunInTx returned nil for a failed savepoint")
		}
		s.rows("a")
	}},
	{name: "SwallowedStatementErrorInTransactorsSavepoint", on: []Dialect{Postgres}, run: func(s *adapterSuite) {
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) error {
			s.ok("Write", s.writingAmbient("a", nil)(ctx))
			if err := outbox.InTx(ctx, s, func(ctx context.Context) error {
				s.ok("Write", s.writingAmbient("b", nil)(ctx))
				if _, err := s.scope(ctx).ExecContext(ctx, duplicate); err == nil {
					s.t.Errorf("%s succeeded", duplicate)
				}
				return nil
			}); err == nil {
				s.t.Error("the inner InTx returned nil for a failed savepoint")
			}
			return nil
		}))
		s.wantEnded("a", "b")
	}},
	{name: "SwallowedDeadlock", on: []Dialect{MySQL}, run: swallowedDeadlock},
	{name: "EndedByStatement", on: []Dialect{SQLite}, run: func(s *adapterSuite) {
		for _, ended := range []string{"a", "a b"} {
			tx := s.begin(s.ctx, ended[len(ended)-1:])
			s.fails(tx, "INSERT OR ROLLBACK INTO suite_row (id, n) VALUES (1, 1)")
			if ended == "a" {
				s.refusesWrite(tx)
			}
			s.commitFails(tx)
			s.wantEnded("", ended)
		}
	}},
	{name: "DDLCommits", on: []Dialect{MySQL}, run: committedBy("/* ddl */ CREATE TABLE suite_ddl (id INTEGER)")},
	{name: "RawCommit", run: committedBy("COMMIT")},
	{name: "DDLThatDoesNotCommit", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.run(tx, map[Dialect]string{
			Postgres: "CREATE TABLE suite_ddl (id INTEGER)", SQLite: "CREATE TABLE suite_ddl (id INTEGER)",
			MySQL: "CREATE TEMPORARY TABLE suite_ddl (id INTEGER)",
		}[s.Dialect])
		s.write(s.ctx, tx, "b")
		s.ok("Rollback", s.Rollback(tx))
		s.wantEnded("", "a b")
	}},
	{name: "RawRollback", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.run(tx, "ROLLBACK")
		s.refusesWrite(tx)
		s.commitFails(tx)
		s.wantEnded("", "a")
	}},
}

// committedBy makes a test of a statement that commits a transaction.
func committedBy(query string) func(s *adapterSuite) {
	return func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.run(tx, query)
		s.refusesWrite(tx)
		_ = s.Rollback(tx)
		if s.SeesEnd {
			s.wantCalls("a", "")
			s.rows("a")
			return
		}
		s.wantUnknown("a")
	}
}

// swallowedDeadlock makes InnoDB choose our transaction as the victim of a deadlock, because it is
// the lighter transaction, and ignores the error.
func swallowedDeadlock(s *adapterSuite) {
	heavy, err := s.DB.BeginTx(s.ctx, nil)
	s.ok("beginning the other transaction", err)
	defer func() { _ = heavy.Rollback() }()
	_, err = heavy.ExecContext(s.ctx, "INSERT INTO suite_row (id, n) VALUES (101, 0), (102, 0), (103, 0), (104, 0), (105, 0), (106, 0)")
	s.ok("giving the other transaction weight", err)
	_, err = heavy.ExecContext(s.ctx, "UPDATE suite_row SET n = 1 WHERE id = 1")
	s.ok("locking row 1", err)

	tx := s.begin(s.ctx, "a")
	s.run(tx, "UPDATE suite_row SET n = 2 WHERE id = 2")
	blocked := make(chan error, 1)
	go func() {
		_, err := heavy.ExecContext(s.ctx, "UPDATE suite_row SET n = 1 WHERE id = 2")
		blocked <- err
	}()
	// Whichever of the two statements comes later, the lighter transaction is the victim.
	s.fails(tx, "UPDATE suite_row SET n = 2 WHERE id = 1")
	s.ok("the other transaction's update", <-blocked)
	s.refusesWrite(tx)
	s.commitFails(tx)
	s.wantEnded("", "a")
}

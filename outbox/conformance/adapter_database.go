package conformance

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterDatabaseTests = []adapterTest{
	{name: "CommitFails", on: []Dialect{Postgres, SQLite}, run: func(s *adapterSuite) {
		if s.dialect == SQLite {
			s.db.SetMaxOpenConns(1)
			s.exec("PRAGMA foreign_keys = ON")
		}
		s.exec("CREATE TABLE suite_child (id INTEGER NOT NULL REFERENCES suite_row (id) DEFERRABLE INITIALLY DEFERRED)")
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.run(tx, "INSERT INTO suite_child (id) VALUES (77)")
		if err := s.Commit(tx); err == nil {
			s.t.Fatal("Commit returned nil for a violated constraint")
		}
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
		// The connection works again.
		tx = s.begin()
		after := s.write(s.ctx, tx)
		s.ok("Commit", s.Commit(tx))
		s.wantCalls([]string{after}, []string{id})
		s.rows(after)
	}},
	{name: "SwallowedStatementError", on: []Dialect{Postgres}, run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		if err := s.Exec(s.ctx, tx, "INSERT INTO suite_row (id, n) VALUES (1, 1)"); err == nil {
			s.t.Error("a duplicate was inserted")
		}
		if err := s.Commit(tx); err == nil {
			s.t.Error("Commit returned nil for a failed transaction")
		}
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "SwallowedStatementErrorInSavepoint", on: []Dialect{Postgres}, run: func(s *adapterSuite) {
		var a, b string
		var inner error
		outer := s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			a = s.write(ctx, tx)
			inner = s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				b = s.write(ctx, tx)
				_ = s.Exec(ctx, tx, "INSERT INTO suite_row (id, n) VALUES (1, 1)")
				return nil
			})
			return nil
		})
		s.truth(a, b)
		if s.frameworkSavepoints {
			if outer == nil && len(s.stored()) < 2 && inner == nil {
				s.t.Error("both RunInTx returned nil for a failed savepoint")
			}
			return
		}
		s.ok("RunInTx", outer)
		if inner == nil {
			s.t.Error("the inner RunInTx returned nil for a failed savepoint")
		}
		s.rows(a)
	}},
	{name: "SwallowedStatementErrorInTransactorsSavepoint", on: []Dialect{Postgres}, run: func(s *adapterSuite) {
		var a, b string
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) (err error) {
			a, err = s.writer.Write(ctx, s.event())
			s.ok("Write", err)
			if err := outbox.InTx(ctx, s, func(ctx context.Context) (err error) {
				b, err = s.writer.Write(ctx, s.event())
				s.ok("Write", err)
				_, err = s.scope(ctx).ExecContext(ctx, "INSERT INTO suite_row (id, n) VALUES (1, 1)")
				if err == nil {
					s.t.Error("a duplicate was inserted")
				}
				return nil
			}); err == nil {
				s.t.Error("the inner InTx returned nil for a failed savepoint")
			}
			return nil
		}))
		s.wantCalls([]string{a}, []string{b})
		s.rows(a)
	}},
	{name: "StatementErrorOfOther", on: []Dialect{MySQL, SQLite}, run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		if err := s.Exec(s.ctx, tx, "INSERT INTO suite_row (id, n) VALUES (1, 1)"); err == nil {
			s.t.Error("a duplicate was inserted")
		}
		s.ok("Commit", s.Commit(tx)) // only the statement failed
		s.wantCalls([]string{id}, nil)
		s.rows(id)
	}},
	{name: "SwallowedDeadlock", on: []Dialect{MySQL}, run: swallowedDeadlock},
	{name: "EndedByStatement", on: []Dialect{SQLite}, run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.run(tx, "INSERT INTO suite_row (id, n) VALUES (3, 0)")
		if err := s.Exec(s.ctx, tx, "INSERT OR ROLLBACK INTO suite_row (id, n) VALUES (3, 1)"); err == nil {
			s.t.Error("a duplicate was inserted")
		}
		if _, err := s.Write(s.ctx, tx, s.event()); err == nil {
			s.t.Error("Write succeeded where the row would commit by itself")
		}
		if err := s.Commit(tx); err == nil {
			s.t.Error("Commit returned nil for a transaction that the database had undone")
		}
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "EndedByStatementThenCommit", on: []Dialect{SQLite}, run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		if err := s.Exec(s.ctx, tx, "INSERT OR ROLLBACK INTO suite_row (id, n) VALUES (1, 1)"); err == nil {
			s.t.Error("a duplicate was inserted")
		}
		if err := s.Commit(tx); err == nil {
			s.t.Error("Commit returned nil for a transaction that the database had undone")
		}
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "DDLCommits", on: []Dialect{MySQL}, run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.run(tx, "/* ddl */ CREATE TABLE suite_ddl (id INTEGER)")
		if _, err := s.Write(s.ctx, tx, s.event()); err == nil {
			s.t.Error("Write succeeded where the row would commit by itself")
		}
		_ = s.Rollback(tx)
		s.wantCalls(nil, []string{id})
		s.wantCause(id, outbox.ErrOutcomeUnknown)
		s.rows(id)
	}},
	{name: "TemporaryTableDoesNotCommit", on: []Dialect{MySQL}, run: func(s *adapterSuite) {
		tx := s.begin()
		a := s.write(s.ctx, tx)
		s.run(tx, "CREATE TEMPORARY TABLE suite_ddl (id INTEGER)")
		b := s.write(s.ctx, tx)
		s.ok("Rollback", s.Rollback(tx))
		s.wantCalls(nil, []string{a, b})
		s.wantDefinite(a)
		s.rows()
	}},
	{name: "DDLIsTransactional", on: []Dialect{Postgres, SQLite}, run: func(s *adapterSuite) {
		tx := s.begin()
		a := s.write(s.ctx, tx)
		s.run(tx, "CREATE TABLE suite_ddl (id INTEGER)")
		b := s.write(s.ctx, tx)
		s.ok("Rollback", s.Rollback(tx))
		s.wantCalls(nil, []string{a, b})
		s.wantDefinite(a)
		s.rows()
	}},
	{name: "RawRollback", run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.run(tx, "ROLLBACK")
		if _, err := s.Write(s.ctx, tx, s.event()); err == nil {
			s.t.Error("Write succeeded where the row would commit by itself")
		}
		if err := s.Commit(tx); err == nil {
			s.t.Error("Commit returned nil after a ROLLBACK statement")
		}
		s.wantCalls(nil, []string{id})
		s.wantDefinite(id)
		s.rows()
	}},
	{name: "RawCommit", run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.run(tx, "COMMIT")
		if _, err := s.Write(s.ctx, tx, s.event()); err == nil {
			s.t.Error("Write succeeded where the row would commit by itself")
		}
		_ = s.Rollback(tx)
		s.wantCalls(nil, []string{id})
		s.wantCause(id, outbox.ErrOutcomeUnknown)
		s.rows(id)
	}},
}

// swallowedDeadlock makes InnoDB choose our transaction as a deadlock's victim, as
// the lighter of the two, and ignores the error.
func swallowedDeadlock(s *adapterSuite) {
	heavy, err := s.db.BeginTx(s.ctx, nil)
	s.ok("beginning the other transaction", err)
	defer func() { _ = heavy.Rollback() }()
	_, err = heavy.ExecContext(s.ctx, "INSERT INTO suite_row (id, n) VALUES (101, 0), (102, 0), (103, 0), (104, 0), (105, 0), (106, 0)")
	s.ok("giving the other transaction weight", err)
	_, err = heavy.ExecContext(s.ctx, "UPDATE suite_row SET n = 1 WHERE id = 1")
	s.ok("locking row 1", err)

	tx := s.begin()
	id := s.write(s.ctx, tx)
	s.run(tx, "UPDATE suite_row SET n = 2 WHERE id = 2")
	blocked := make(chan error, 1)
	go func() {
		_, err := heavy.ExecContext(s.ctx, "UPDATE suite_row SET n = 1 WHERE id = 2")
		blocked <- err
	}()
	// Whichever comes second, the lighter transaction is the victim.
	if err := s.Exec(s.ctx, tx, "UPDATE suite_row SET n = 2 WHERE id = 1"); err == nil {
		s.t.Fatal("there was no deadlock")
	}
	s.ok("the other transaction's update", <-blocked)
	if _, err := s.Write(s.ctx, tx, s.event()); err == nil {
		s.t.Error("Write succeeded where the row would commit by itself")
	}
	if err := s.Commit(tx); err == nil {
		s.t.Error("Commit returned nil for a transaction that a deadlock had undone")
	}
	s.wantCalls(nil, []string{id})
	s.wantDefinite(id)
	s.rows()
}

package txscope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

var dialects = []string{txscope.Postgres, txscope.MySQL, txscope.SQLite}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		query string
		op    txscope.Op
		name  string
	}{
		{"SAVEPOINT a", txscope.Savepoint, "a"},
		{"  savepoint\tSP1;", txscope.Savepoint, "sp1"},
		{`SAVEPOINT "Mixed ""Case"""`, txscope.Savepoint, `Mixed "Case"`},
		{"SAVEPOINT `A``b`", txscope.Savepoint, "a`b"},
		{"SAVEPOINT [A b]", txscope.Savepoint, "a b"},
		{"SAVEPOINT'x'", txscope.Savepoint, "x"},
		{"/*c*/SAVEPOINT/*c*/a/*c*/", txscope.Savepoint, "a"},
		{"-- why\n-- and how\nSAVEPOINT a -- done", txscope.Savepoint, "a"},
		{"; ;\n SAVEPOINT a", txscope.Savepoint, "a"},
		{"SAVEPOINT a/*traceparent='00'*/", txscope.Savepoint, "a"},
		{"SAVEPOINT a; -- a comment", txscope.Savepoint, "a"},
		{"SAVEPOINT \"a;b\" /* ; */;", txscope.Savepoint, "a;b"},
		{"SAVEPOINT", txscope.None, ""},
		{`SAVEPOINT "open`, txscope.None, ""},
		{"ROLLBACK TO a", txscope.RollbackTo, "a"},
		{"ROLLBACK TO SAVEPOINT a", txscope.RollbackTo, "a"},
		{"ROLLBACK WORK TO SAVEPOINT a", txscope.RollbackTo, "a"},
		{"rollback transaction to A", txscope.RollbackTo, "a"},
		{"ROLLBACK TO savepoint", txscope.RollbackTo, "savepoint"},
		{"ROLLBACK TO SAVEPOINT savepoint", txscope.RollbackTo, "savepoint"},
		{"ROLLBACK TO", txscope.None, ""},
		{"RELEASE a", txscope.Release, "a"},
		{`RELEASE SAVEPOINT "A"`, txscope.Release, "A"},
		{"COMMIT", txscope.Commit, ""},
		{"commit;", txscope.Commit, ""},
		{"COMMIT AND CHAIN", txscope.Commit, ""},
		{"END", txscope.Commit, ""},
		{"COMMIT PREPARED 'x'", txscope.None, ""},
		{"PREPARE TRANSACTION 'x'", txscope.Commit, ""},
		{" prepare/*c*/transaction\nE'x';", txscope.Commit, ""},
		{"PREPARE TRANSACTION $$x$$", txscope.Commit, ""},
		{"PREPARE transaction AS SELECT 1", txscope.None, ""},
		{"PREPARE transaction (int) AS SELECT $1", txscope.None, ""},
		{"PREPARE transaction FROM 'SELECT 1'", txscope.None, ""},
		{"PREPARE plan AS SELECT 1", txscope.None, ""},
		{"XA PREPARE 'x'", txscope.None, ""}, // MySQL refuses these in a transaction, which goes on
		{"ROLLBACK", txscope.Rollback, ""},
		{"ROLLBACK WORK", txscope.Rollback, ""},
		{"ROLLBACK PREPARED 'x'", txscope.None, ""},
		{"ABORT", txscope.Rollback, ""},
		{"BEGIN", txscope.Begin, ""},
		{"START TRANSACTION READ ONLY", txscope.Begin, ""},
		{"CREATE TEMPORARY TABLE t (id INT)", txscope.None, ""},
		{"CREATE OR REPLACE TEMPORARY TABLE t (id INT)", txscope.None, ""},
		{"DROP /* c */ TEMPORARY TABLE t", txscope.None, ""},
		{"SET NAMES utf8mb4", txscope.None, ""},
		{"INSERT INTO t VALUES ('SAVEPOINT a')", txscope.None, ""},
		{"INSERT INTO t VALUES ('a; ROLLBACK TO a')", txscope.None, ""},
		{"INSERT INTO t VALUES ('it''s; ROLLBACK TO a'); -- done", txscope.None, ""},
		{"SELECT 1 -- ; ROLLBACK\n", txscope.None, ""},
		{"SELECT 1 /* ; ROLLBACK */", txscope.None, ""},
		{"SELECT 1; SELECT 2", txscope.None, ""},
		{"SELECT 1; ROLLBACK TO a", txscope.Unclear, ""},
		{"SELECT ';'; ROLLBACK TO a", txscope.Unclear, ""},
		{"SELECT 1;;/* c */ -- c\n ; rollback to a -- c", txscope.Unclear, ""},
		{"SELECT '/*'; ROLLBACK TO a; SELECT '*/'", txscope.Unclear, ""},
		{"SELECT '-- '; ROLLBACK TO a", txscope.Unclear, ""},
		{"ROLLBACK TO a; SELECT 1", txscope.Unclear, ""},
		{"COMMIT; BEGIN", txscope.Unclear, ""},
		{"SELECT 'open; ROLLBACK TO a", txscope.Unclear, ""},
		{"UPDATE t SET a = 1", txscope.None, ""},
		{"WITH a AS (SELECT 1) SELECT * FROM a", txscope.None, ""},
		{"(SELECT 1)", txscope.None, ""},
		{"DELETE FROM t", txscope.None, ""},
	} {
		for _, dialect := range dialects {
			require.Equal(t, txscope.Statement{Op: tt.op, Name: tt.name}, txscope.Parse(dialect, tt.query), "%s: %q", dialect, tt.query)
		}
	}
}

// The same text is another statement on another database.
func TestParseByDialect(t *testing.T) {
	t.Parallel()
	none, commits, back := txscope.None, txscope.ImplicitCommit, txscope.RollbackTo
	unclear := txscope.Unclear
	for _, tt := range []struct {
		query                   string
		postgres, mysql, sqlite txscope.Op
	}{
		{"CREATE TABLE t (id INT)", none, commits, none},
		{"create or replace view v as select 1", none, commits, none},
		{"DROP TABLE t", none, commits, none},
		{"ALTER TABLE t ADD c INT", none, commits, none},
		{"TRUNCATE t", none, commits, none},
		{"RENAME TABLE a TO b", none, commits, none},
		{"LOCK TABLES t WRITE", none, commits, none},
		{"BACKUP LOCK t", none, commits, none},
		{"SET autocommit = 1", none, commits, none},
		{"SET @@session.autocommit=1", none, commits, none},
		{"SET NAMES utf8mb4, @@AUTOCOMMIT = 1", none, commits, none},
		{"SET DEFAULT ROLE NONE", none, commits, none},
		{"SET STATEMENT max_statement_time=1 FOR ROLLBACK TO a", none, unclear, none},
		{"CALL p()", none, unclear, none},
		{"EXECUTE IMMEDIATE 'ROLLBACK TO a'", unclear, unclear, unclear},
		{"EXECUTE back", unclear, unclear, unclear},
		{"IF 1 THEN ROLLBACK TO a", none, unclear, none},
		{"FOR i IN 1..1 DO ROLLBACK TO a; END FOR", unclear, unclear, unclear},
		{"SOMETHING NEW", none, unclear, none},
		{"", none, none, none},
		{"/*", none, none, none},
		{"--", none, none, none},
		{"SAVEPOINTS a", none, unclear, none},
		{"/*!50000 ROLLBACK TO a */", none, unclear, none},
		{"/*M!100100 ROLLBACK TO a */", none, unclear, none},
		{"/*! c */ ROLLBACK TO a", back, unclear, back},
		{"ROLLBACK /*! TO a */", txscope.Rollback, unclear, txscope.Rollback},
		{"SELECT /*! STRAIGHT_JOIN */ 1", none, none, none},
		{"SELECT 1 /*! ; ROLLBACK TO a */", none, unclear, none},
		{"SELECT 1; /*! ROLLBACK TO a */", none, unclear, none},
		{"/* outer /* inner */ still */ ROLLBACK TO a", back, unclear, none},
		{"/* never /* closed */ ROLLBACK TO a", none, back, back},
		{"/* a /* b */ ROLLBACK TO a -- */", none, back, back},
		{"-- c\rROLLBACK TO a", back, none, none},
		{"# c\nROLLBACK TO a", none, back, none},
		{"SELECT 1 # ; ROLLBACK TO a", unclear, none, unclear},
		{"SELECT 1--1; ROLLBACK TO a", none, unclear, none},
		{`SELECT '\'; ROLLBACK TO a`, unclear, unclear, unclear},
		{`SELECT '\'; ROLLBACK TO a -- '`, unclear, unclear, unclear},
		{`SELECT '\'; SELECT 1`, unclear, unclear, none},
		{"SELECT `a;rollback`", unclear, none, none},
		{"SELECT [a;b]", none, unclear, none},
		{"SELECT [a'b]; ROLLBACK TO a", unclear, unclear, unclear},
		{"DO $$ BEGIN PERFORM 1; END $$", none, unclear, unclear},
		{"DO $f$ x; $$ ; COMMIT $f$", none, unclear, unclear},
		{"SELECT a$b$; ROLLBACK TO a; SELECT a$b$", unclear, unclear, unclear},
		{"SELECT $1, $2; ROLLBACK TO a", unclear, unclear, unclear},
		{"\ufeffROLLBACK TO a", back, back, back},
	} {
		for i, want := range []txscope.Op{tt.postgres, tt.mysql, tt.sqlite} {
			require.Equal(t, want, txscope.Parse(dialects[i], tt.query).Op, "%s: %q", dialects[i], tt.query)
		}
	}
	require.Equal(t, unclear, txscope.Parse("", "SELECT 1; SELECT 2").Op, "of an unknown dialect")
}

const insert = "INSERT INTO outbox_event (event_id, event_type) VALUES ($1, $2)"

func TestParseOfOrdinaryStatementsDoesNotAllocate(t *testing.T) {
	for _, query := range []string{insert, "SELECT 1", "SELECT ';';", "savepoint outbox_1"} {
		require.Zero(t, testing.AllocsPerRun(100, func() { txscope.Parse(txscope.Postgres, query) }), "%q", query)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"SAVEPOINT a", `ROLLBACK TO "a""b"`, "/*/**/*/RELEASE`x`;", "--\nCOMMIT", "SET @@autocommit=1", insert,
		"SELECT 1; ROLLBACK", "SELECT $$;$$", "/*! */", `SELECT '\'';'`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, dialect := range dialects {
			parse := func(query string) txscope.Statement { return txscope.Parse(dialect, query) }
			s := parse(query)
			named := s.Op == txscope.Savepoint || s.Op == txscope.RollbackTo || s.Op == txscope.Release
			require.Equal(t, named, s.Name != "")
			// What the database ignores does not matter.
			require.Equal(t, s, parse(" ;/* c */-- c\n"+query))
			if named {
				quoted := `"` + strings.ReplaceAll(s.Name, `"`, `""`) + `"`
				require.Equal(t, txscope.Statement{Op: s.Op, Name: s.Name}, parse(map[txscope.Op]string{
					txscope.Savepoint: "SAVEPOINT ", txscope.RollbackTo: "ROLLBACK TO ", txscope.Release: "RELEASE ",
				}[s.Op]+quoted))
			}
			// Statements in front do not hide one that controls the transaction.
			if s.Op != txscope.None && s.Op != txscope.ImplicitCommit {
				require.Equal(t, txscope.Unclear, parse("SELECT 'a', \"b\" /* c; */; SELECT ';';"+query).Op)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, query := range map[string]string{
		"insert": insert, "semicolon": insert + ";", "literal": "INSERT INTO notes (text) VALUES ('a; b')",
		"several": insert + ";" + insert, "savepoint": "SAVEPOINT outbox_1",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				txscope.Parse(txscope.MySQL, query)
			}
		})
	}
}

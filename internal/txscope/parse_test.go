package txscope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

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
		{"/* outer /* inner */ still */ SAVEPOINT a", txscope.Savepoint, "a"},
		{"/* never /* closed */ SAVEPOINT a", txscope.Savepoint, "a"},
		{"-- why\n# and how\nSAVEPOINT a -- done", txscope.Savepoint, "a"},
		{"; ;\n SAVEPOINT a", txscope.Savepoint, "a"},
		{"SAVEPOINT a/*traceparent='00'*/", txscope.Savepoint, "a"},
		{"SAVEPOINT", txscope.None, ""},
		{`SAVEPOINT "open`, txscope.None, ""},
		{"SAVEPOINTS a", txscope.None, ""},
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
		{"CREATE TABLE t (id INT)", txscope.ImplicitCommit, ""},
		{"create or replace view v as select 1", txscope.ImplicitCommit, ""},
		{"CREATE TEMPORARY TABLE t (id INT)", txscope.None, ""},
		{"CREATE OR REPLACE TEMPORARY TABLE t (id INT)", txscope.None, ""},
		{"DROP TABLE t", txscope.ImplicitCommit, ""},
		{"DROP /* c */ TEMPORARY TABLE t", txscope.None, ""},
		{"ALTER TABLE t ADD c INT", txscope.ImplicitCommit, ""},
		{"TRUNCATE t", txscope.ImplicitCommit, ""},
		{"RENAME TABLE a TO b", txscope.ImplicitCommit, ""},
		{"LOCK TABLES t WRITE", txscope.ImplicitCommit, ""},
		{"SET autocommit = 1", txscope.ImplicitCommit, ""},
		{"SET @@session.autocommit=1", txscope.ImplicitCommit, ""},
		{"SET NAMES utf8mb4", txscope.None, ""},
		{"INSERT INTO t VALUES ('SAVEPOINT a')", txscope.None, ""},
		{"SELECT 1; ROLLBACK TO a", txscope.None, ""}, // a limit: only the first counts
		{"UPDATE t SET a = 1", txscope.None, ""},
		{"DELETE FROM t", txscope.None, ""},
		{"", txscope.None, ""},
		{"/*", txscope.None, ""},
		{"--", txscope.None, ""},
	} {
		require.Equal(t, txscope.Statement{Op: tt.op, Name: tt.name}, txscope.Parse(tt.query), "%q", tt.query)
	}
}

const insert = "INSERT INTO outbox_event (event_id, event_type) VALUES ($1, $2)"

func TestParseOfOrdinaryStatementsDoesNotAllocate(t *testing.T) {
	for _, query := range []string{insert, "SELECT 1", "savepoint outbox_1"} {
		require.Zero(t, testing.AllocsPerRun(100, func() { txscope.Parse(query) }), "%q", query)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"SAVEPOINT a", `ROLLBACK TO "a""b"`, "/*/**/*/RELEASE`x`;", "--\nCOMMIT", "SET @@autocommit=1", insert} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		s := txscope.Parse(query)
		named := s.Op == txscope.Savepoint || s.Op == txscope.RollbackTo || s.Op == txscope.Release
		require.Equal(t, named, s.Name != "")
		// What the database ignores does not matter.
		require.Equal(t, s, txscope.Parse(" ;/* c */-- c\n"+query))
		if named {
			quoted := `"` + strings.ReplaceAll(s.Name, `"`, `""`) + `"`
			require.Equal(t, txscope.Statement{Op: s.Op, Name: s.Name}, txscope.Parse(map[txscope.Op]string{
				txscope.Savepoint: "SAVEPOINT ", txscope.RollbackTo: "ROLLBACK TO ", txscope.Release: "RELEASE ",
			}[s.Op]+quoted))
		}
	})
}

func BenchmarkParseInsert(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		txscope.Parse(insert)
	}
}

package sqltx_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// unclearCase is a statement that runs in a transaction, after a savepoint s and an event, and the
// event's outcome when the transaction then commits. "refused": the database refuses it, as
// MySQL refuses what is "unknown on MariaDB".
type unclearCase struct {
	on    []testdb.Kind
	query string
	want  string
}

var (
	everywhere = []testdb.Kind{testdb.Postgres, testdb.MySQL, testdb.SQLite}
	standard   = []testdb.Kind{testdb.Postgres, testdb.SQLite}
	onPostgres = []testdb.Kind{testdb.Postgres}
	onMySQL    = []testdb.Kind{testdb.MySQL}
	onSQLite   = []testdb.Kind{testdb.SQLite}
)

var unclearCases = []unclearCase{
	{everywhere, "ROLLBACK TO SAVEPOINT s", "rollback"},
	{everywhere, "ROLLBACK TO SAVEPOINT s; -- done", "rollback"},
	{everywhere, "RELEASE SAVEPOINT s;", "commit"},
	{everywhere, "SELECT 1; ROLLBACK TO SAVEPOINT s", "unknown"},
	{everywhere, "SELECT '/*'; ROLLBACK TO SAVEPOINT s; SELECT '*/'", "unknown"},
	{everywhere, "SELECT 1; ROLLBACK", "unknown"},
	{everywhere, "SELECT 1; COMMIT", "unknown"},
	{everywhere, "COMMIT; BEGIN", "unknown"},
	{everywhere, "ROLLBACK; BEGIN", "unknown"},
	{everywhere, "SELECT 1; SELECT 2", "commit"},
	{everywhere, "SELECT 1; -- a comment", "commit"},
	{everywhere, "SELECT '; ROLLBACK TO SAVEPOINT s'", "commit"},
	{everywhere, "SELECT 1 /* ; ROLLBACK TO SAVEPOINT s */", "commit"},
	{standard, "/*! ignored */ ROLLBACK TO SAVEPOINT s", "rollback"},
	{onPostgres, "-- a comment\rROLLBACK TO SAVEPOINT s", "rollback"},
	{onPostgres, "/* a /* b */ c */ ROLLBACK TO SAVEPOINT s", "rollback"},
	{onPostgres, `SELECT E'\''; ROLLBACK TO SAVEPOINT s; SELECT ''`, "unknown"},
	{onPostgres, "SELECT $$; ROLLBACK TO SAVEPOINT s$$", "commit"},
	{onPostgres, "DO $$ BEGIN PERFORM 1; END $$", "commit"},
	{onPostgres, "DO $$ BEGIN ROLLBACK; END $$", "refused"},
	{onPostgres, "CALL step_back()", "refused"},
	{onSQLite, "/* a /* b */ ROLLBACK TO SAVEPOINT s -- */", "rollback"},
	{onSQLite, "SELECT 1 AS [a'b]; ROLLBACK TO SAVEPOINT s", "unknown"},
	{onMySQL, "/* a /* b */ ROLLBACK TO SAVEPOINT s -- */", "rollback"},
	{onMySQL, "/*!50000 ROLLBACK TO SAVEPOINT s */", "unknown"},
	{onMySQL, "/*M!100100 ROLLBACK TO SAVEPOINT s */", "unknown"},
	{onMySQL, "ROLLBACK /*! TO SAVEPOINT s */", "unknown"},
	{onMySQL, "SELECT /*! STRAIGHT_JOIN */ 1", "commit"},
	{onMySQL, "EXECUTE IMMEDIATE 'ROLLBACK TO SAVEPOINT s'", "unknown on MariaDB"},
	{onMySQL, "EXECUTE IMMEDIATE 'COMMIT'", "unknown on MariaDB"},
	{onMySQL, "PREPARE back FROM 'ROLLBACK TO SAVEPOINT s'; EXECUTE back", "unknown on MariaDB"},
	{onMySQL, "SET STATEMENT max_statement_time=1 FOR ROLLBACK TO SAVEPOINT s", "unknown on MariaDB"},
	{onMySQL, "IF 1 THEN ROLLBACK TO SAVEPOINT s; END IF", "unknown on MariaDB"},
	{onMySQL, "BEGIN NOT ATOMIC ROLLBACK TO SAVEPOINT s; END", "unknown on MariaDB"},
	{onMySQL, "PREPARE finish FROM 'COMMIT'; EXECUTE finish", "unknown"},
	{onMySQL, "CALL step_back()", "unknown"},
	{onMySQL, "CALL finish()", "unknown"},
	{onMySQL, "CALL nothing()", "unknown"},
	{onMySQL, "SET DEFAULT ROLE NONE", "unknown on MariaDB"},
	{onMySQL, "SET NAMES utf8mb4, @@autocommit = 1", "unknown"},
	{onMySQL, "SHOW STATUS LIKE 'Threads%'", "commit"},
	{onMySQL, "DO SLEEP(0)", "commit"},
}

var procedures = map[testdb.Kind][]string{
	testdb.MySQL: {
		"CREATE PROCEDURE step_back() ROLLBACK TO SAVEPOINT s", "CREATE PROCEDURE finish() COMMIT", "CREATE PROCEDURE nothing() DO 1",
	},
	testdb.Postgres: {"CREATE PROCEDURE step_back() LANGUAGE plpgsql AS 'BEGIN ROLLBACK; END'"},
}

// eachWithSeveral runs fn on each kind of database, over a driver that takes several
// statements in one string.
func eachWithSeveral(t *testing.T, fn func(t *testing.T, plain *testdb.DB)) {
	t.Helper()
	for _, target := range testdb.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			var opts []testdb.Option
			if target.Kind == testdb.MySQL {
				opts = append(opts, testdb.Param("multiStatements", "true"))
			}
			fn(t, testdb.Open(t, target, opts...))
		})
	}
}

// Nothing counts as committed that a statement may have undone, however it is written: the
// poller then delivers what is in the table. A statement that is clear stays exact.
func TestUnclearStatements(t *testing.T) {
	t.Parallel()
	eachWithSeveral(t, func(t *testing.T, plain *testdb.DB) {
		f := followed(t, plain)
		for _, procedure := range procedures[plain.Kind] {
			exec(t, plain, procedure)
		}
		for _, tc := range unclearCases {
			if !slices.Contains(tc.on, plain.Kind) {
				continue
			}
			want, only := strings.CutSuffix(tc.want, " on MariaDB")
			refused := tc.want == "refused" || only && !plain.IsMariaDB(t)
			for end, finish := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
				t.Run(tc.query+", then "+end, func(t *testing.T) {
					exec(t, plain, "DELETE FROM written")
					f.rec.Reset()
					tx := begin(t, f.db)
					exec(t, tx, "SAVEPOINT s")
					write(t, f.a, tx)
					_, err := tx.ExecContext(t.Context(), tc.query)
					require.Equal(t, refused, err != nil, "%v", err)
					_ = finish(tx)
					f.rec.Eventually(t, expected(want, end))
					switch f.rec.Outcomes()[0] {
					case "commit":
						require.Equal(t, 1, written(t, plain.DB))
					case "rollback":
						require.Equal(t, 0, written(t, plain.DB))
					}
				})
			}
		}
	})
}

// expected is the outcome of an event whose transaction ends in that way.
func expected(want, end string) string {
	if want == "refused" || want == "commit" && end == "rollback" {
		return "rollback"
	}
	return want
}

// An unclear statement makes the connection ask whether the transaction still exists. If it
// does, what is written later is exact.
func TestWriteAfterAnUnclearStatement(t *testing.T) {
	t.Parallel()
	eachWithSeveral(t, func(t *testing.T, plain *testdb.DB) {
		f := followed(t, plain)
		tx := begin(t, f.db)
		exec(t, tx, "SAVEPOINT s")
		write(t, f.a, tx)
		exec(t, tx, "SELECT 1; ROLLBACK TO SAVEPOINT s")
		write(t, f.a, tx)
		require.NoError(t, tx.Commit())
		f.rec.EventuallyInAnyOrder(t, "unknown", "commit")
		require.Equal(t, 1, written(t, plain.DB))

		f.rec.Reset()
		tx = begin(t, f.db)
		write(t, f.a, tx)
		exec(t, tx, "SELECT 1; COMMIT")
		_, err := f.a.Write(t.Context(), tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction, "it would commit by itself")
		_ = tx.Rollback()
		f.rec.Eventually(t, "unknown")
		require.Equal(t, 2, written(t, plain.DB))
	})
}

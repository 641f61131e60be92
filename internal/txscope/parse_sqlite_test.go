package txscope_test

import (
	"context"
	"database/sql"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// outside are statements that reach beyond the database of the test.
var outside = regexp.MustCompile(`(?i)attach|vacuum|pragma|load_extension|readfile|writefile`)

// FuzzParseAgainstSQLite runs a query in a transaction of SQLite: when Parse takes it for a
// statement that leaves the transaction alone, then the transaction and its row are there.
func FuzzParseAgainstSQLite(f *testing.F) {
	for _, seed := range []string{
		"SELECT 1", "SELECT 1; ROLLBACK TO s", "/* a /* b */ ROLLBACK TO s -- */", "SELECT '\\'; ROLLBACK TO s; SELECT ''",
		"SELECT 1 AS [a'b]; COMMIT", "SELECT '/*'; ROLLBACK TO s; SELECT '*/'", "/*! */ ROLLBACK", "SELECT 1 -- ;\n;END",
		"\ufeffROLLBACK TO s", "SELECT \"a;\"\"b\"; ABORT", "SELECT '; ROLLBACK TO s'", "EXPLAIN ROLLBACK", "SELECT `;`;\vRELEASE s",
	} {
		f.Add(seed)
	}
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(f, err)
	defer func() { require.NoError(f, db.Close()) }()
	db.SetMaxOpenConns(1)
	exec := func(query string) error {
		_, err := db.Exec(query) //nolint:noctx // the statements are the test's.
		return err
	}
	f.Fuzz(func(t *testing.T, query string) {
		if outside.MatchString(query) {
			t.Skip("it would reach outside of the test's database")
		}
		require.NoError(t, exec("CREATE TABLE IF NOT EXISTS row_of_the_outbox (id)"))
		require.NoError(t, exec("BEGIN"))
		require.NoError(t, exec("SAVEPOINT s"))
		require.NoError(t, exec("INSERT INTO row_of_the_outbox VALUES (1)"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it may never end
		_, failed := db.ExecContext(ctx, query)
		cancel()
		open := exec("BEGIN") != nil // within a transaction it is refused
		var rows int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM row_of_the_outbox").Scan(&rows)) //nolint:noctx // as above.
		_ = exec("ROLLBACK")
		_ = exec("DELETE FROM row_of_the_outbox")
		if failed == nil && txscope.Parse(txscope.SQLite, query).Op == txscope.None {
			require.True(t, open && rows == 1, "transaction open: %t, rows: %d", open, rows)
		}
	})
}

// Package runbook_test runs the SQL of docs/how-to/when-something-is-wrong.md.
package runbook_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var block = regexp.MustCompile("(?s)```sql\n(.*?)```")

// run runs each statement of the blocks that the database has.
func run(t *testing.T, db *testdb.DB, blocks [][][]byte) {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	for _, m := range blocks {
		for statement := range strings.SplitSeq(strings.TrimSpace(string(m[1])), ";\n") {
			if strings.Contains(statement, "pg_") && db.Kind != testdb.Postgres {
				continue
			}
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
	}
}

// The pages' statements run on a table as the store creates it. Those on the server's own
// tables are PostgreSQL's.
func TestTheStatementsOfThePagesRun(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"when-something-is-wrong.md", "wake-up-other-nodes.md"} {
		text, err := os.ReadFile("../../how-to/" + page)
		require.NoError(t, err)
		blocks := block.FindAllSubmatch(text, -1)
		require.NotEmpty(t, blocks, page)
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) { run(t, db, blocks) })
		})
	}
}

// Package sql_test runs the statements of docs/reference/sql.md.
package sql_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// onlyPostgres finds the statements that other databases do not know.
var onlyPostgres = regexp.MustCompile(`pg_|regclass|now\(\)`)

func TestTheStatementsOfThePageRun(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../reference/sql.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(page, -1)
	require.Greater(t, len(blocks), 10)
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db))
		for _, block := range blocks {
			statement := strings.TrimSuffix(strings.TrimSpace(string(block[1])), ";")
			if db.Kind != testdb.Postgres && onlyPostgres.MatchString(statement) || strings.Contains(statement, "\nGRANT ") { // before-production runs these
				continue
			}
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
		due, err := store.Poll(t.Context(), db, outbox.PollQuery{Now: time.Now().Add(time.Minute), Limit: 10})
		require.NoError(t, err)
		if db.Kind == testdb.Postgres {
			require.Len(t, due.Envelopes, 1, "the event that SQL wrote is due")
			require.Equal(t, outbox.EventType("OrderPlaced"), due.Envelopes[0].EventType)
		}
	})
}

package sqlstore_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// olderGolden are the statements of the last build for version 1.
const olderGolden = "testdata/statements_v1.golden"

var parameters = regexp.MustCompile(`\n  -- \d+ parameters\n`)

// olderStatements are the statements of that build, by their sections.
func olderStatements(t *testing.T, kind testdb.Kind) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(olderGolden)
	require.NoError(t, err)
	_, own, ok := strings.Cut(string(text), "==== "+string(kind)+"\n")
	require.True(t, ok)
	own, _, _ = strings.Cut(own, "==== ")
	sections := map[string][]string{}
	section := ""
	for _, part := range parameters.Split(own, -1) {
		part = strings.TrimSpace(part)
		for strings.HasPrefix(part, "-- ") {
			section, part, _ = strings.Cut(strings.TrimPrefix(part, "-- "), "\n")
		}
		if part != "" && part != "BEGIN" && part != "COMMIT" && part != "ROLLBACK" {
			sections[section] = append(sections[section], part)
		}
	}
	return sections
}

// What a build of version 1 sends is valid on tables of this version, and a row that it
// inserts is delivered. make chaos/skew runs that build itself.
func TestTheStatementsOfTheBuildBeforeRunOnTheNewestTables(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		sections := olderStatements(t, db.Kind)
		n := 0
		for section, statements := range sections {
			for _, statement := range statements {
				prepared, err := db.PrepareContext(ctx, statement)
				require.NoError(t, err, "%s: %s", section, statement)
				require.NoError(t, prepared.Close())
				n++
			}
		}
		require.Greater(t, n, 40)

		now := any(time.Now().UTC().Format("2006-01-02 15:04:05.000000"))
		if db.Kind == testdb.SQLite {
			now = time.Now().UnixMicro()
		}
		_, err := db.ExecContext(ctx, sections["insert"][0], "e-1", "Placed", "Order", "o-1", "t-1", "{}", `{"k":"v"}`, now, now)
		require.NoError(t, err)
		require.Len(t, deliver(t, store, db, "node/1"), 1)
	})
}

package sqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// statements are those of a migration's text.
func statements(text string) (list []string) {
	var statement strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "--") {
			continue
		}
		statement.WriteString(line)
		if strings.HasSuffix(line, ";\n") {
			list = append(list, statement.String())
			statement.Reset()
		}
	}
	return list
}

// execAll runs the statements of a migration's text.
func execAll(t *testing.T, db *testdb.DB, text string) {
	t.Helper()
	for _, statement := range statements(text) {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// deliver claims the due events and marks them done.
func deliver(t *testing.T, store *sqlstore.Store, db *testdb.DB, lease string) []outbox.Envelope {
	t.Helper()
	batch, err := store.Claim(t.Context(), db.DB, outbox.ClaimQuery{Now: time.Now(), Limit: 10, Lease: lease, LeaseDuration: time.Minute})
	require.NoError(t, err)
	marks := make([]outbox.Mark, len(batch.Envelopes))
	for i, env := range batch.Envelopes {
		marks[i] = outbox.Mark{EventID: env.EventID, Lease: lease}
	}
	left, err := store.Mark(t.Context(), db.DB, outbox.OutcomeDone, marks)
	require.NoError(t, err)
	require.Empty(t, left)
	return batch.Envelopes
}

func requireVersion(t *testing.T, want int, store *sqlstore.Store, db *testdb.DB) {
	t.Helper()
	got, err := store.SchemaVersion(t.Context(), db.DB)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// fingerprint describes the tables, for comparison.
func fingerprint(t *testing.T, db *testdb.DB) string {
	t.Helper()
	questions := map[testdb.Kind][]string{
		testdb.Postgres: {
			"SELECT relname || ' ' || COALESCE(array_to_string(reloptions, ','), '') FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind <> 't' ORDER BY 1",
			"SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1",
		},
		testdb.MySQL:  {"SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name) FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY 1"},
		testdb.SQLite: {"SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY 1"},
	}
	columns := map[testdb.Kind]string{
		testdb.Postgres: "SELECT table_name || ' ' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1",
		testdb.MySQL:    "SELECT CONCAT_WS(' ', table_name, column_name, column_type) FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY 1",
	}
	var b strings.Builder
	for _, question := range append(questions[db.Kind], columns[db.Kind]) {
		if question == "" {
			continue
		}
		rows, err := db.QueryContext(t.Context(), question)
		require.NoError(t, err)
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			b.WriteString(line + "\n")
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	return b.String()
}

// dump is what the event table holds. The payload is a text, so that a migration changes
// no prepared statement of PostgreSQL.
func dump(t *testing.T, db *testdb.DB) (rows []string) {
	t.Helper()
	text := map[testdb.Kind]string{testdb.Postgres: "CAST(payload AS TEXT)", testdb.MySQL: "payload", testdb.SQLite: "payload"}[db.Kind]
	r, err := db.QueryContext(t.Context(), "SELECT event_id, event_type, "+text+", status, attempts, COALESCE(locked_by, '') FROM outbox_event ORDER BY event_id")
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	for r.Next() {
		var id, event, payload, lease string
		var status, attempts int
		require.NoError(t, r.Scan(&id, &event, &payload, &status, &attempts, &lease))
		rows = append(rows, fmt.Sprint(id, event, payload, status, attempts, lease))
	}
	require.NoError(t, r.Err())
	return rows
}

var someTime = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

package main_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// newer is a version that this build does not know.
const newer = sqlstore.SchemaVersion + 1

// version makes the table one of another version.
func (s *shop) version(t *testing.T, version, least int) {
	t.Helper()
	_, err := s.ExecContext(t.Context(), fmt.Sprintf(`UPDATE outbox_event_control SET value = '{"version":%d,"min_version":%d}' WHERE kind = 'schema'`, version, least))
	require.NoError(t, err)
}

func TestATableThatNeedsANewerBuildIsNotChanged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.dead(t, "x", 2)
		s.version(t, newer, newer)
		for _, args := range [][]string{
			{"dead", "replay", "--all", "--yes"},
			{"dead", "delete", "d000000"},
			{"pause", "OrderPlaced"},
			{"resume", "OrderPlaced"},
			{"purge", "--retention", "0s", "--yes"},
			{"schema", "create"},
			{"schema", "create", "--dry-run"},
			{"schema", "migrate"},
			{"schema", "migrate", "--to", "1", "--dry-run"},
		} {
			require.Contains(t, fails(t, 1, s.DSN, args...), fmt.Sprint("the table has version ", newer), "%v", args)
		}
		require.Equal(t, 2, s.count(t, outbox.StatusDead))
		require.Empty(t, answer(t, s.DSN, "paused")["pauses"])
		r := run(t, s.DSN, "doctor")
		require.Equal(t, 5, r.code)
		require.Contains(t, r.out, "→ deploy a newer build")
		s.version(t, newer, 1)
		require.Contains(t, ok(t, s.DSN, "schema", "create"), fmt.Sprintf("has version %d already", newer))
		ok(t, s.DSN, "dead", "replay", "--all", "--yes")
	})
}

func TestAnIndexOfATableThatExistsIsAddedAfterAQuestion(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		for _, command := range []string{"create", "migrate"} {
			require.Contains(t, ok(t, s.DSN, "schema", command, "--index", "key", "--dry-run"), "would add the index idx_outbox_event_key")
		}
		if s.Kind == testdb.Postgres {
			require.Contains(t, fails(t, 2, s.DSN, "schema", "create", "--index", "key"), "CREATE INDEX CONCURRENTLY")
		}
		require.Contains(t, ok(t, s.DSN, "schema", "create", "--index", "key", "--yes"), "added the index idx_outbox_event_key")
		require.Contains(t, ok(t, s.DSN, "schema", "create", "--index", "key"), fmt.Sprintf("has version %d already", sqlstore.SchemaVersion))
	})
}

func TestAnOlderVersionOfTheTableNeedsAConfirmation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		require.Contains(t, fails(t, 2, s.DSN, "schema", "migrate", "--to", "1"), fmt.Sprintf("processes that need version %d then fail to start", sqlstore.SchemaVersion))
		require.EqualValues(t, sqlstore.SchemaVersion, answer(t, s.DSN, "schema", "check")["version"])
		require.Contains(t, ok(t, s.DSN, "schema", "migrate", "--to", "1", "--yes"), fmt.Sprintf("from version %d to 1", sqlstore.SchemaVersion))
		require.Contains(t, ok(t, s.DSN, "schema", "migrate"), fmt.Sprintf("from version 1 to %d", sqlstore.SchemaVersion), "a newer one does not")
	})
}

func TestAVersionThatCannotBeReadIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	_, err := s.ExecContext(t.Context(), "UPDATE outbox_event_control SET value = 'x' WHERE kind = 'schema'")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(fails(t, 1, s.DSN, "schema", "check"), "no valid value"))
}

func TestWhatIsMissingIsNamedWithItsCommand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		require.Contains(t, fails(t, 1, s.DSN, "events", "list", "--table", "fresh"), "outbox schema create --table fresh")
		if s.Kind != testdb.SQLite {
			for _, args := range [][]string{{"schema", "create"}, {"schema", "create", "--dry-run"}, {"schema", "migrate"}, {"events", "list"}} {
				require.Contains(t, fails(t, 1, s.DSN, append(args, "--table", "no_such.ev")...), "CREATE SCHEMA no_such", "%v", args)
			}
		}
		_, err := s.ExecContext(t.Context(), "DROP TABLE outbox_event_control")
		require.NoError(t, err)
		require.Contains(t, fails(t, 1, s.DSN, "nodes"), "the control table outbox_event_control of the table outbox_event does not exist")
	})
}

// MySQL lets a session have another clock.
func TestAReplayedEventIsDueByTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[1]))
	s.dead(t, "x", 1)
	now := time.Now().Add(2 * time.Hour).Truncate(time.Second)
	other := s.Reopen(t, testdb.Param("timestamp", strconv.FormatInt(now.Unix(), 10)))
	ok(t, other.DSN, "dead", "replay", "d000000")
	due, err := time.Parse(time.RFC3339Nano, answer(t, s.DSN, "events", "show", "d000000")["available_at"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, now, due, time.Minute)
}

func TestAPauseOfAKindThatNoEventHasIsPointedOut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		other := envelope("e2")
		other.EventType, other.AggregateType = "Ping", outbox.Global
		s.insert(t, envelope("e1"), other)
		r := run(t, s.DSN, "pause", "OrderPlaced")
		require.Zero(t, r.code)
		require.Contains(t, r.err, "pending are events of Order/OrderPlaced")
		require.Empty(t, run(t, s.DSN, "pause", "OrderPlaced", "--aggregate-type", "Order").err)
		require.Empty(t, run(t, s.DSN, "pause", "Ping").err)
		require.Contains(t, run(t, s.DSN, "pause", "Oder", "--dry-run").err, "Warning: no pending event")
		require.Empty(t, run(t, s.DSN, "resume", "OrderPlaced").err)
	})
}

func TestTheNumberOfEventsToPurgeIsALowerBoundWhenThereAreManyMore(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[0]))
	_, err := s.ExecContext(t.Context(), `INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at, done_at)
 SELECT n, 'T', '{}', 1, '2026-01-05', '2026-01-05', '2026-01-05' FROM generate_series(1, 100600) AS n`)
	require.NoError(t, err)
	require.Contains(t, ok(t, s.DSN, "purge", "--dry-run"), "would purge 100000 or more done, dead and deleted events")
	require.Contains(t, fails(t, 2, s.DSN, "purge"), "purge 100000 or more")
	require.Equal(t, true, answer(t, s.DSN, "purge", "--dry-run")["or_more"])
	require.EqualValues(t, 100_600, answer(t, s.DSN, "purge", "--yes", "--batch", "10000")["purged"])
}

package sqlstore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// recipe is the SQL of a section of the page on partitions, block by block.
func recipe(t testing.TB, section string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/partitions.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, ok, section)
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, part := range strings.Split(rest, "```sql\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

// partitioned creates the tables of the page in a database. The second pool runs a block of
// statements as one.
func partitioned(t testing.TB) (db, blocks *testdb.DB) {
	t.Helper()
	db = testdb.Open(t, testdb.Main()[0])
	blocks = db.Reopen(t, testdb.Param("default_query_exec_mode", "simple_protocol"))
	for _, block := range []string{recipe(t, "Create the tables")[0], recipe(t, "Add and drop partitions")[0]} {
		_, err := blocks.ExecContext(t.Context(), block)
		require.NoError(t, err)
	}
	return db, blocks
}

func TestPartitionedTablesPassTheConformanceSuite(t *testing.T) {
	t.Parallel()
	// The suite's events begin at this time, a millisecond apart: the first ones have a
	// partition each.
	first := time.Date(2024, 3, 5, 10, 20, 30, 123456000, time.UTC)
	options := suiteOptions[:len(suiteOptions)-1] // without the unique index
	certifyTables(t, options, func(t testing.TB) *testdb.DB {
		db, _ := partitioned(t)
		for i := range 6 {
			from := first.Add(time.Duration(i) * time.Millisecond)
			_, err := db.ExecContext(t.Context(), fmt.Sprintf("CREATE TABLE event_%d PARTITION OF outbox_event (PRIMARY KEY (event_id)) FOR VALUES FROM ('%s') TO ('%s')",
				i, from.Format(time.RFC3339Nano), from.Add(time.Millisecond).Format(time.RFC3339Nano)))
			require.NoError(t, err)
		}
		require.NoError(t, storeFor(db.Kind, options...).CreateSchema(t.Context(), db.DB))
		return db
	})
}

// PostgreSQL refuses the storage parameters of version 2 for a partitioned table.
func TestPartitionedTablesAreMigratedDownAndUp(t *testing.T) {
	t.Parallel()
	db, _ := partitioned(t)
	ctx, store := t.Context(), sqlstore.Postgres()
	want := fingerprint(t, db)
	for range 2 {
		_, err := store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		requireVersion(t, 1, store, db)
		_, err = store.Migrate(ctx, db.DB, sqlstore.SchemaVersion)
		require.NoError(t, err)
		requireVersion(t, sqlstore.SchemaVersion, store, db)
	}
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	require.Equal(t, want, fingerprint(t, db))
}

func TestPartitionsAreDroppedOnlyWhenAllTheirEventsAreDelivered(t *testing.T) {
	t.Parallel()
	db, blocks := partitioned(t)
	ctx := t.Context()
	store := sqlstore.Postgres()
	require.NoError(t, store.Check(ctx, db.DB, true))
	daily := recipe(t, "Add and drop partitions")[1]
	old := time.Now().UTC().AddDate(0, 0, -31)
	day := old.Format("2006-01-02")
	_, err := db.ExecContext(ctx, "SELECT outbox_event_add_day('"+day+"')")
	require.NoError(t, err)

	events := events("old", 2)
	for i := range events {
		events[i].OccurredAt, events[i].AvailableAt = old, old
	}
	insert(t, store, db, events, "", time.Time{})
	partition := "outbox_event_" + strings.ReplaceAll(day, "-", "")
	rows := func() (n int) {
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+partition).Scan(&n))
		return n
	}
	require.Equal(t, 2, rows())

	statements := strings.Split(strings.TrimSpace(daily), "\n")
	drop := func() (kept int) {
		t.Helper()
		_, err := blocks.ExecContext(ctx, strings.Join(statements[:len(statements)-1], "\n"))
		require.NoError(t, err)
		var name string
		require.NoError(t, blocks.QueryRowContext(ctx, statements[len(statements)-1]).Scan(&name, &kept))
		require.Equal(t, partition, name)
		return kept
	}
	require.Equal(t, 2, drop())
	require.Equal(t, 2, rows())
	_, err = store.Mark(ctx, db.DB, outbox.OutcomeDead, []outbox.Mark{{EventID: events[0].EventID, Error: "broken"}})
	require.NoError(t, err)
	_, err = store.Mark(ctx, db.DB, outbox.OutcomeDone, []outbox.Mark{{EventID: events[1].EventID}})
	require.NoError(t, err)
	require.Equal(t, 1, drop())
	require.Equal(t, 2, rows())
	for _, look := range recipe(t, "Add and drop partitions")[2:] {
		_, err = db.ExecContext(ctx, look)
		require.NoError(t, err)
	}

	_, err = store.DeleteDead(ctx, db.DB, []string{events[0].EventID}, "", time.Time{})
	require.NoError(t, err)
	require.Zero(t, drop())
	var gone bool
	require.NoError(t, db.QueryRowContext(ctx, "SELECT to_regclass('"+partition+"') IS NULL").Scan(&gone))
	require.True(t, gone)
	var partitions int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM pg_inherits WHERE inhparent = 'outbox_event'::regclass").Scan(&partitions))
	require.Equal(t, 9, partitions, "the default one, today's and the next seven days'")
}

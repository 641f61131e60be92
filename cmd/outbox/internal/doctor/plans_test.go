package doctor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// PostgreSQL may read an empty table through any index.
func TestAnEmptyTableWithAllIndexesHasNoBadPlan(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db, sqlstore.WithKeyIndex(), sqlstore.WithAgeIndex(), sqlstore.WithTenantIndex(), sqlstore.WithSearchIndex())
		requireGoodPlans(t, w)
		w.insert(t, "e1", "", time.Hour)
		w.run(t, "DELETE FROM outbox_event")
		requireGoodPlans(t, w)
	})
}

func requireGoodPlans(t *testing.T, w *ward) {
	t.Helper()
	findings := of(w.examine(t), "plans")
	require.Equal(t, doctor.OK, doctor.Worst(findings), "%v", findings)
}

// partition makes the table one with partitions for two months and a default partition.
func (w *ward) partition(t *testing.T) {
	t.Helper()
	w.run(t,
		"ALTER TABLE outbox_event RENAME TO former",
		"CREATE TABLE outbox_event (LIKE former INCLUDING DEFAULTS, PRIMARY KEY (event_id, created_at)) PARTITION BY RANGE (created_at)",
		"DROP TABLE former",
		"CREATE TABLE full_month PARTITION OF outbox_event FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
		"CREATE TABLE empty_month PARTITION OF outbox_event FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
		"CREATE TABLE others PARTITION OF outbox_event DEFAULT",
		"CREATE INDEX idx_outbox_event_due ON outbox_event (available_at, created_at, event_id) WHERE status IN (0, 2)",
		"CREATE INDEX idx_outbox_event_done ON outbox_event (COALESCE(done_at, created_at)) WHERE status = 1",
		"CREATE INDEX idx_outbox_event_dead ON outbox_event (COALESCE(done_at, created_at), event_id) WHERE status = 3",
	)
}

func TestSmallPartitionsMayBeReadWhole(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.partition(t)
	w.run(t, `INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at, done_at)
 SELECT n, 'T', '{}', 1, '2026-01-05', '2026-01-05', '2026-01-05'::timestamptz + n * INTERVAL '1 day' FROM generate_series(1, 11000) AS n`,
		"ANALYZE outbox_event")
	requireGoodPlans(t, w)
	w.cfg.Limits.Rows = 11_001
	requireGoodPlans(t, w)
	w.cfg.Limits.Rows = 10_000
	w.run(t, "UPDATE pg_index SET indisvalid = FALSE WHERE indrelid = 'full_month'::regclass AND NOT indisprimary")
	f := w.requireFinding(t, "plans", doctor.Warning, "a poll does not use")
	require.Contains(t, f.Seen, "about 11000 rows", "the table's own figure is the sum of its partitions'")
}

func TestAPartitionWithoutAutovacuumIsAFailure(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.partition(t)
	w.run(t, "ALTER TABLE empty_month SET (autovacuum_enabled = no)")
	w.run(t, w.requireFinding(t, "vacuum", doctor.Failure, "autovacuum is off for empty_month").WayOut)
	for _, f := range of(w.examine(t), "vacuum") {
		require.NotContains(t, f.Seen, "autovacuum is off for")
	}
}

package sqlstore_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// BenchmarkReadRuns reads runs of up to 500 rows of many keys and of few, beside three
// times as many delivered rows. OUTBOX_BENCH_PENDING is the number of pending rows; it
// defaults to 10,000 and is at most 100,000.
func BenchmarkReadRuns(b *testing.B) {
	pending := 10_000
	if text := os.Getenv("OUTBOX_BENCH_PENDING"); text != "" {
		var err error
		pending, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for _, target := range testdb.Main() {
		db := testdb.Open(b, target)
		store := storeFor(db.Kind, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
		require.NoError(b, store.CreateSchema(b.Context(), db.DB))
		now := time.Now().UTC()
		hour := func(n time.Duration) time.Time { return now.Add(n * time.Hour) }
		loadRows(b, db, []part{
			{"a", pending, 1, hour(-2), hour(-2), hour(-2)},
			{"b", pending, 1, hour(-2), hour(-2), hour(-2)},
			{"c", pending, 1, hour(-2), hour(-2), hour(-2)},
			{"p", pending, 0, hour(-1), hour(-1), time.Time{}},
		})
		for _, keys := range []int{pending / 100, 10, pending} {
			spreadKeys(b, db, "p", keys)
			analyze(b, db)
			for _, length := range []int{50, 1} {
				b.Run(fmt.Sprintf("%s/keys=%d/length=%d", target.Name, keys, length), func(b *testing.B) {
					rows := 0
					for b.Loop() {
						runs, err := store.ReadRuns(b.Context(), db.DB, outbox.RunQuery{Now: now, LeaseDuration: time.Minute, Length: length, Limit: 500})
						require.NoError(b, err)
						rows = 0
						for _, run := range runs.EventIDs {
							rows += len(run)
						}
					}
					b.ReportMetric(float64(rows), "rows")
				})
			}
		}
		_, err := db.ExecContext(b.Context(), "UPDATE outbox_event SET tenant_id = aggregate_id WHERE status = 0")
		require.NoError(b, err)
		b.Run(target.Name+"/tenants", func(b *testing.B) {
			for b.Loop() {
				_, err := store.ReadTenants(b.Context(), db.DB, outbox.TenantQuery{Now: now, Length: 5, Limit: 500})
				require.NoError(b, err)
			}
		})
	}
}

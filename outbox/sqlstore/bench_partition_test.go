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
)

// BenchmarkPartitions compares a plain table with one of 30 days, each with delivered rows
// only. OUTBOX_BENCH_ROWS is their number in all; it defaults to 1,000,000.
func BenchmarkPartitions(b *testing.B) {
	total := 1_000_000
	if text := os.Getenv("OUTBOX_BENCH_ROWS"); text != "" {
		var err error
		total, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	const days = 30
	now := time.Now().UTC()
	for _, name := range []string{"plain", "partitioned"} {
		b.Run(name, func(b *testing.B) {
			var db *testdb.DB
			if name == "plain" {
				db = testdb.Open(b, testdb.Main()[0])
			} else {
				db, _ = partitioned(b)
			}
			require.NoError(b, storeFor(db.Kind).CreateSchema(b.Context(), db.DB))
			for day := range days {
				at := now.AddDate(0, 0, -day)
				if name == "partitioned" {
					_, err := db.ExecContext(b.Context(), "SELECT outbox_event_add_day('"+at.Format("2006-01-02")+"')")
					require.NoError(b, err)
				}
				loadRows(b, db, []part{{fmt.Sprintf("d%02d-", day), total / days, 1, at, at, at}})
			}
			analyze(b, db)
			benchmarkPartitions(b, db)
			oldest := now.AddDate(0, 0, 1-days)
			began := time.Now()
			if name == "partitioned" {
				_, err := db.ExecContext(b.Context(), "SELECT outbox_event_drop_before('"+oldest.AddDate(0, 0, 1).Format("2006-01-02")+"')")
				require.NoError(b, err)
			} else {
				for purged := (outbox.Purged{Rows: 1}); purged.Rows > 0; {
					var err error
					purged, err = storeFor(db.Kind).Purge(b.Context(), db.DB, outbox.PurgeQuery{Before: oldest.Add(time.Hour), Limit: 1000})
					require.NoError(b, err)
				}
			}
			b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "oldest-day-ms")
		})
	}
}

func benchmarkPartitions(b *testing.B, db *testdb.DB) {
	const batch = 200
	store := storeFor(db.Kind)
	took := map[string]time.Duration{}
	timed := func(what string, fn func()) {
		began := time.Now()
		fn()
		took[what] += time.Since(began)
	}
	round := 0
	for b.Loop() {
		round++
		lease := fmt.Sprintf("me/%d", round)
		timed("insert-1", func() { insert(b, store, db, events(fmt.Sprint("o", round), 1), "", time.Time{}) })
		insert(b, store, db, events(fmt.Sprint("r", round), batch-1), "", time.Time{})
		var claimed outbox.Batch
		timed("claim-200", func() {
			var err error
			claimed, err = store.Claim(b.Context(), db.DB, outbox.ClaimQuery{Now: time.Now(), Limit: batch, Lease: lease, LeaseDuration: time.Minute})
			require.NoError(b, err)
		})
		marks := make([]outbox.Mark, batch)
		for i := range marks {
			marks[i] = outbox.Mark{EventID: claimed.Envelopes[i].EventID, Lease: lease}
		}
		timed("mark-1", func() {
			left, err := store.Mark(b.Context(), db.DB, outbox.OutcomeDone, marks[:1])
			require.NoError(b, err)
			require.Nil(b, left)
		})
		timed("mark-199", func() {
			left, err := store.Mark(b.Context(), db.DB, outbox.OutcomeDone, marks[1:])
			require.NoError(b, err)
			require.Nil(b, left)
		})
		timed("idle-claim", func() {
			_, err := store.Claim(b.Context(), db.DB, outbox.ClaimQuery{Now: time.Now(), Limit: batch, Lease: lease, LeaseDuration: time.Minute})
			require.NoError(b, err)
		})
	}
	for what, d := range took {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), what+"-ms")
	}
}

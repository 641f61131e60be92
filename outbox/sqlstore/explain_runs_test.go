package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// keyOf is the SQL for one of so many keys, by the number of a row.
func keyOf(db *testdb.DB, number string, keys int) string {
	key := "substr(event_id, 1, 1) || (%s %% %d)"
	if db.Kind == testdb.MySQL {
		key = "CONCAT(SUBSTR(event_id, 1, 1), %s %% %d)"
	}
	return fmt.Sprintf(key, number, keys)
}

// withKeys loads rows with so many keys for each prefix.
func withKeys(db *testdb.DB, keys int) column { return column{"aggregate_id", keyOf(db, "i", keys)} }

// spreadKeys gives the rows of a prefix so many keys.
func spreadKeys(t testing.TB, db *testdb.DB, prefix string, keys int) {
	t.Helper()
	number := "CAST(substr(event_id, 2) AS INT)"
	if db.Kind == testdb.MySQL {
		number = "CAST(SUBSTR(event_id, 2) AS SIGNED)"
	}
	_, err := db.ExecContext(t.Context(), "UPDATE outbox_event SET aggregate_id = "+keyOf(db, number, keys)+" WHERE event_id LIKE '"+prefix+"%'")
	require.NoError(t, err)
}

// Reading runs costs what it returns, and an index entry for each key that it looks
// at, with few keys and many, and whatever the statistics knew.
func TestReadingRunsCostsWhatItReturns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind, sqlstore.WithKeyIndex())
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		analyze(t, db) // an empty table
		now := time.Now().UTC().Truncate(time.Second)
		hour := func(n time.Duration) time.Time { return now.Add(n * time.Hour) }
		loadRows(t, db, []part{
			{"d", doneRows, 1, hour(-2), hour(-2), hour(-2)},
			{"f", futureRows, 0, hour(-1), hour(1), time.Time{}},
		}, withKeys(db, 10))
		loadRows(t, db, []part{{"p", pendingRows, 0, hour(-1), hour(-1), time.Time{}}}, withKeys(db, 1000))
		loadRows(t, db, []part{{"x", deadRows, 3, hour(-2), hour(-2), hour(-2)}})
		db.SetMaxOpenConns(1)
		limit := readLimit + 500 // keys that a call looks at
		if db.Kind == testdb.MySQL {
			// Rows of each status and of temporary tables. When most keys have one row, it reads
			// past the other rows of a key.
			limit = 20*500 + futureRows
		}
		rec := &recorded{DB: db.DB}
		reads := func(name string, q outbox.RunQuery, want int) {
			t.Helper()
			q.Now, q.LeaseDuration, q.Limit, q.SkipDead = now, time.Hour, readBatch, true
			rec.statements = nil
			cost := costOf(t, db, rec, func() {
				n := 0
				runs, err := store.ReadRuns(ctx, rec, q)
				require.NoError(t, err)
				for _, run := range runs.EventIDs {
					n += len(run)
				}
				require.InDelta(t, want, n, readBatch/10, name) // some keys have only delayed events
			})
			t.Logf("%s: %d rows for %d", name, cost, want)
			require.LessOrEqual(t, cost, limit, name)
		}
		begins := func(name string) {
			t.Helper()
			ids := make([]string, readBatch)
			for i := range ids {
				ids[i] = fmt.Sprintf("p%08d", pendingRows/readBatch*i)
			}
			rec.statements = nil
			cost := costOf(t, db, rec, func() {
				_, err := store.BeginKeys(ctx, rec, ids)
				require.NoError(t, err)
			})
			t.Logf("%s, which of %d events begin their keys: %d rows", name, len(ids), cost)
			require.LessOrEqual(t, cost, 6*len(ids), name) // MariaDB counts rows of caches too
		}
		for i, keys := range []int{1000, 10, pendingRows} {
			if i > 0 {
				spreadKeys(t, db, "p", keys)
			}
			begins(fmt.Sprintf("%d keys", keys))
			reads(fmt.Sprintf("%d keys", keys), outbox.RunQuery{Length: 10}, readBatch)
			reads(fmt.Sprintf("%d keys, from the middle", keys), outbox.RunQuery{Length: 10, After: outbox.EventKey{AggregateType: "A", ID: "p4"}}, min(readBatch, 10*keys/2))
			analyze(t, db)
			reads(fmt.Sprintf("%d keys, analyzed", keys), outbox.RunQuery{Length: 10}, readBatch)
			reads(fmt.Sprintf("%d keys, takeovers", keys), outbox.RunQuery{Length: 10, Takeovers: true}, 0)
		}
		spreadKeys(t, db, "p", 10)
		_, err := db.ExecContext(ctx, "UPDATE outbox_event SET aggregate_id = REPLACE(aggregate_id, 'f', 'p') WHERE event_id LIKE 'f%'")
		require.NoError(t, err)
		analyze(t, db)
		reads("10 keys, delayed events behind", outbox.RunQuery{Length: 10}, readBatch)
	})
}

// One tenant has most of the events, and others have a few, delayed or leased ones too.
func TestReadingTenantsCostsWhatItReturns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind, sqlstore.WithTenantIndex())
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		analyze(t, db)
		now := time.Now().UTC().Truncate(time.Second)
		hour := func(n time.Duration) time.Time { return now.Add(n * time.Hour) }
		loadRows(t, db, []part{
			{"d", doneRows, 1, hour(-2), hour(-2), hour(-2)},
			{"f", futureRows, 0, hour(-1), hour(1), time.Time{}},
		})
		loadRows(t, db, []part{{"p", pendingRows, 0, hour(-1), hour(-1), time.Time{}}}, column{"tenant_id", "'flood'"})
		loadRows(t, db, []part{{"o", 100, 0, hour(-1), hour(-1), time.Time{}}}, withKeys(db, 50), column{"tenant_id", keyOf(db, "i", 50)})
		db.SetMaxOpenConns(1)
		rec := &recorded{DB: db.DB}
		limit := readLimit
		if db.Kind == testdb.MySQL {
			limit = 10 * readBatch // rows of each status, and of temporary tables
		}
		for _, name := range []string{"statistics of an empty table", "analyzed"} {
			for _, after := range []string{"", "o3"} {
				rec.statements = nil
				cost := costOf(t, db, rec, func() {
					tenants, err := store.ReadTenants(ctx, rec, outbox.TenantQuery{Now: now, After: after, Length: 2, Limit: readBatch})
					require.NoError(t, err)
					require.Len(t, tenants.EventIDs, readBatch)
				})
				t.Logf("%s, behind %q: %d rows", name, after, cost)
				require.LessOrEqual(t, cost, limit, "%s, behind %q", name, after)
			}
			analyze(t, db)
		}
	})
}

func TestClaimingEventsByTheirIDsReadsThemAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		now := time.Now().UTC().Truncate(time.Second)
		loadParts(t, db, []part{{"p", pendingRows, 0, now.Add(-time.Hour), now.Add(-time.Hour), time.Time{}}})
		db.SetMaxOpenConns(1)
		rec := &recorded{DB: db.DB}
		ids := make([]string, 500)
		for i := range ids {
			ids[i] = fmt.Sprintf("p%08d", 100*i)
		}
		cost := costOf(t, db, rec, func() {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: len(ids), EventIDs: ids, Lease: "me/1", LeaseDuration: time.Hour, FreshOnly: true})
			require.NoError(t, err)
			require.Equal(t, len(ids), b.Len())
		})
		require.LessOrEqual(t, cost, 5*len(ids))
	})
}

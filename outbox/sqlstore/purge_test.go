package sqlstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A listener has failed for an hour: many finished rows are DEAD, and all of them
// are younger than the DONE rows.
func loadOutage(t testing.TB, db *testdb.DB, now time.Time, done, dead int) {
	t.Helper()
	week, hour := now.Add(-7*24*time.Hour), now.Add(-time.Hour)
	loadParts(t, db, []part{{"d", done, 1, week, week, week}, {"x", dead, 3, hour, hour, hour}})
}

func TestReadingAndPurgingDeadRowsSkipsTheDoneOnes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		now := time.Now().UTC().Truncate(time.Second)
		loadOutage(t, db, now, 60_000, 30_000)
		db.SetMaxOpenConns(1) // MySQL's counters are per session

		rec := &recorded{DB: db.DB}
		until := outbox.DeadFilter{Until: now.Add(time.Microsecond)}
		middle := outbox.DeadRowsQuery{DeadFilter: until, Limit: readBatch, AfterDiedAt: now.Add(-time.Hour + 15*time.Second), AfterEventID: "x00015000"}
		purge := func() (int, error) {
			purged, err := store.Purge(ctx, rec, outbox.PurgeQuery{Before: now, Limit: readBatch})
			return purged.Rows, err
		}
		for _, c := range []struct {
			name string
			call func() (int, error)
		}{
			{"dead letters until now", func() (int, error) {
				letters, err := store.QueryDead(ctx, rec, outbox.DeadRowsQuery{DeadFilter: until, Limit: readBatch})
				return len(letters), err
			}},
			{"keys of dead letters until now", func() (int, error) {
				letters, err := store.QueryDead(ctx, rec, outbox.DeadRowsQuery{DeadFilter: until, Limit: readBatch, KeysOnly: true})
				return len(letters), err
			}},
			{"dead letters behind a place", func() (int, error) {
				letters, err := store.QueryDead(ctx, rec, middle)
				return len(letters), err
			}},
			{"purge of done rows", purge},
			{"purge of the last done rows and of dead ones", purge},
			{"purge of dead rows", purge},
		} {
			if c.name == "purge of the last done rows and of dead ones" {
				_, err := db.ExecContext(ctx, "DELETE FROM outbox_event WHERE status = 1 AND event_id >= 'd00000150'")
				require.NoError(t, err)
			}
			rec.statements = nil
			cost := costOf(t, db, rec, func() {
				n, err := c.call()
				require.NoError(t, err, c.name)
				require.Equal(t, readBatch, n, c.name)
			})
			t.Logf("%s looks at %d rows", c.name, cost)
			require.LessOrEqual(t, cost, readLimit, "%s reads %d rows to return %d", c.name, cost, readBatch)
		}
	})
}

// BenchmarkPurge deletes 500 of many finished rows, a third of them DEAD.
func BenchmarkPurge(b *testing.B) {
	const batch = 500
	for _, target := range testdb.Main() {
		b.Run(target.Name, func(b *testing.B) {
			db := testdb.Open(b, target)
			store := storeFor(db.Kind)
			require.NoError(b, store.CreateSchema(b.Context(), db.DB))
			now, left := time.Now().UTC().Truncate(time.Second), 0
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					loadOutage(b, db, now, 50*batch, 25*batch)
					left = 75
					b.StartTimer()
				}
				left--
				purged, err := store.Purge(b.Context(), db.DB, outbox.PurgeQuery{Before: now, Limit: batch})
				require.NoError(b, err)
				require.Equal(b, batch, purged.Rows)
			}
		})
	}
}

// An earlier build had one index for DONE and DEAD rows together.
func TestCreateSchemaAddsTheIndexThatATableOfAnEarlierBuildLacks(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		if db.Kind == testdb.MySQL {
			return // its table has always had these keys
		}
		ctx, store := t.Context(), storeFor(db.Kind)
		_, err := store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		for _, statement := range []string{
			"DROP INDEX idx_outbox_event_done",
			"CREATE INDEX idx_outbox_event_old ON outbox_event (COALESCE(done_at, created_at)) WHERE status IN (1, 3)",
		} {
			_, err := db.ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		_, err = db.ExecContext(ctx, "DROP INDEX idx_outbox_event_done")
		require.NoError(t, err, "it is there again")
	})
}

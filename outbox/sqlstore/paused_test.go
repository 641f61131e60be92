package sqlstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A pause with more due events than Stats counts does not hide the oldest event of another kind.
func TestTheOldestEventBehindManyOfPausedKindsIsFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		store := detected(t, db)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		now := time.Now().UTC().Truncate(time.Second)
		paused := []outbox.EventKind{{AggregateType: "A", EventType: "T"}}
		stats := func() outbox.StoreStats {
			st, err := store.Stats(t.Context(), db.DB, now, paused)
			require.NoError(t, err)
			return st
		}
		// Almost as many rows as Stats counts, and then more.
		for _, prefix := range []string{"a", "b"} {
			loadParts(t, db, []part{{prefix, outbox.StatsLimit - 10, 0, now.Add(-time.Hour), now.Add(-time.Hour), time.Time{}}})
			st := stats()
			require.Zero(t, st.OldestDue, "all due events are paused")
			require.Equal(t, st.Due, st.DuePaused)
		}
		require.EqualValues(t, outbox.StatsLimit, stats().DuePaused)
		env := events("other", 1)[0]
		env.OccurredAt, env.AvailableAt = now.Add(-time.Minute), now.Add(-time.Minute)
		insert(t, store, db, []outbox.Envelope{env}, "", time.Time{})
		st := stats()
		require.Equal(t, now.Add(-time.Minute), st.OldestDue)
		require.EqualValues(t, outbox.StatsLimit, st.DuePaused)
		require.EqualValues(t, outbox.StatsLimit, st.Due)
	})
}

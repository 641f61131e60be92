package sqlstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// Processes of an older version know no ends. For them a kind is paused until its row is gone.
func TestTheRowOfAPauseThatEndedIsDeleted(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := detected(t, db)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		now, err := store.Now(t.Context(), db.DB)
		require.NoError(t, err)
		for name, until := range map[string]time.Time{"over": now.Add(-time.Second), "later": now.Add(time.Hour), "never": {}} {
			require.NoError(t, store.Pause(t.Context(), db.DB, outbox.Pause{Kind: outbox.EventKind{EventType: outbox.EventType(name)}, Since: now, Until: until}))
		}
		require.NoError(t, store.Announce(t.Context(), db.DB, outbox.Node{Owner: "node-1"}, time.Minute))
		var rows int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event_control WHERE kind = 'pause'").Scan(&rows))
		require.Equal(t, 2, rows)
		list, err := store.Paused(t.Context(), db.DB)
		require.NoError(t, err)
		require.Len(t, list, 2)
	})
}

// A value of expires_at that is no time is no end: the kind stays paused until it is resumed.
func TestAPauseWhoseEndIsNoTimeHasNoEnd(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		value, holds := map[testdb.Kind]string{testdb.Postgres: "'infinity'", testdb.SQLite: "'soon'"}[db.Kind]
		if !holds {
			t.Skip("MySQL has no such value")
		}
		store := detected(t, db)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		kind := outbox.EventKind{EventType: "Paid"}
		require.NoError(t, store.Pause(t.Context(), db.DB, outbox.Pause{Kind: kind, Since: time.Now()}))
		_, err := db.ExecContext(t.Context(), "UPDATE outbox_event_control SET expires_at = "+value+" WHERE kind = 'pause'")
		require.NoError(t, err)
		require.NoError(t, store.Announce(t.Context(), db.DB, outbox.Node{Owner: "node-1"}, time.Minute))
		list, err := store.Paused(t.Context(), db.DB)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.True(t, list[0].Until.IsZero())
		require.NoError(t, store.Resume(t.Context(), db.DB, kind, ""))
	})
}

package sqlstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A deferral of OrderedByKey is a retry without an attempt and without an error.
func TestARetryWithoutAnErrorStoresNull(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		envs := events("e", 4)
		insert(t, store, db, envs, "", time.Time{})
		marks := make([]outbox.Mark, len(envs))
		for i := range marks {
			marks[i] = outbox.Mark{EventID: envs[i].EventID, AvailableAt: someTime, Attempts: 3, Error: "it failed"}
		}
		_, err := store.Mark(ctx, db.DB, outbox.OutcomeRetry, marks)
		require.NoError(t, err)
		marks[0].Error, marks[0].Attempts, marks[1].Error, marks[1].Attempts = "", 0, "", 0
		_, err = store.Mark(ctx, db.DB, outbox.OutcomeRetry, marks[:1])
		require.NoError(t, err)
		_, err = store.Mark(ctx, db.DB, outbox.OutcomeRetry, marks[1:])
		require.NoError(t, err)
		var deferred, failed int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE last_error IS NULL AND attempts = 3 AND status = 2").Scan(&deferred))
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE last_error = 'it failed' AND attempts = 3 AND status = 2").Scan(&failed))
		require.Equal(t, [2]int{2, 2}, [2]int{deferred, failed})
	})
}

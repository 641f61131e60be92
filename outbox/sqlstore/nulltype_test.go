package sqlstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// More rows than a statement changes get their aggregate type from a single read.
func TestManyRowsWithoutAnAggregateTypeGetIt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind, sqlstore.WithKeyIndex())
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		const n = 1200
		insert(t, store, db, events("e", n), "", time.Time{})
		_, err := db.ExecContext(ctx, "UPDATE outbox_event SET aggregate_type = NULL")
		require.NoError(t, err)
		_, err = store.ReadRuns(ctx, db.DB, outbox.RunQuery{Now: time.Now(), LeaseDuration: time.Minute, Takeovers: true, Length: 3, Limit: 10})
		require.NoError(t, err)
		var named int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE aggregate_type = '__GLOBAL__'").Scan(&named))
		require.Equal(t, n, named)
	})
}

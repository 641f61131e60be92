package sqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A value that somebody wrote by hand is an error that says how to go on.
func TestAValueOfTheRangesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		first := outbox.Ranges{Version: "node/1", Ranges: []outbox.Range{{Name: "node/1", Until: someTime}}}
		set, err := store.SetRanges(ctx, db.DB, "", time.Now().Add(time.Hour), first)
		require.NoError(t, err)
		require.True(t, set)
		for _, value := range []string{"NULL", "''", "'{}'", "'[1]'", "'[{\"t\":\"secret\"}]'"} {
			_, err = db.ExecContext(ctx, "UPDATE outbox_event_control SET value = "+value+" WHERE kind = 'ranges'")
			require.NoError(t, err)
			_, err = store.Ranges(ctx, db.DB)
			require.ErrorContains(t, err, "row 'ranges', 'table' of the control table has no valid value", value)
			require.ErrorContains(t, err, "delete the row")
			require.NotContains(t, err.Error(), "secret")
		}
		_, err = db.ExecContext(ctx, "DELETE FROM outbox_event_control WHERE kind = 'ranges'")
		require.NoError(t, err)
		got, err := store.Ranges(ctx, db.DB)
		require.NoError(t, err)
		require.Empty(t, got.Version)
		set, err = store.SetRanges(ctx, db.DB, got.Version, time.Now().Add(time.Hour), first)
		require.NoError(t, err)
		require.True(t, set)
	})
}

// MySQL cuts a text that is too long for its column if the session is not strict. The cut text would
// be no valid value.
func TestTooManyRangesAreRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		db.SetMaxOpenConns(1)
		if db.Kind == testdb.MySQL {
			_, err := db.ExecContext(ctx, "SET SESSION sql_mode = ''")
			require.NoError(t, err)
		}
		ranges := outbox.Ranges{Version: "node/1"}
		place := outbox.Cursor{AvailableAt: someTime, CreatedAt: someTime, EventID: strings.Repeat("x", 36)}
		for i := range 500 {
			ranges.Ranges = append(ranges.Ranges, outbox.Range{Name: fmt.Sprint("node/", i), After: place, Upto: place, Until: someTime.Add(time.Second)})
		}
		set, err := store.SetRanges(ctx, db.DB, "", time.Now().Add(time.Hour), ranges)
		if db.Kind == testdb.MySQL {
			require.ErrorContains(t, err, "column value of the control table has room for 65535")
			ranges = outbox.Ranges{Version: "node/2", Ranges: ranges.Ranges[:200]}
			set, err = store.SetRanges(ctx, db.DB, "", time.Now().Add(time.Hour), ranges)
		}
		require.NoError(t, err)
		require.True(t, set)
		got, err := store.Ranges(ctx, db.DB)
		require.NoError(t, err)
		require.Equal(t, ranges.Ranges, got.Ranges)
	})
}

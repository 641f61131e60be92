package sqlstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A time of delivery that another program stored, and that is no time, keeps a replay from no other event,
// and pages of any size come to the end.
func TestDeliveriesWhoseTimeIsNoTimeAreLeftOut(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		bad := map[testdb.Kind][]string{
			testdb.Postgres: {"'infinity'", "'-infinity'", "NULL"},
			testdb.MySQL:    {"'2024-00-00'", "'2024-01-00'", "'2024-02-31'", "NULL"},
			testdb.SQLite:   {"'soon'", "x'01'", "1704067200000000.5", "NULL"},
		}[db.Kind]
		var want []string
		place := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
		db.SetMaxOpenConns(1)
		if db.Kind == testdb.MySQL {
			_, err := db.ExecContext(ctx, "SET sql_mode = 'ALLOW_INVALID_DATES'")
			require.NoError(t, err)
		}
		for i := range 12 {
			good, spoilt := fmt.Sprintf("good-%02d", i), fmt.Sprintf("bad-%02d", i)
			envs := events("x", 2)
			envs[0].EventID, envs[1].EventID = good, spoilt
			for j := range envs {
				envs[j].OccurredAt, envs[j].AvailableAt = place.AddDate(-1, 0, 0), place.AddDate(-1, 0, 0)
			}
			insert(t, store, db, envs, "", time.Time{})
			at := place.AddDate(0, 0, 9*i)
			value := "'" + at.Format("2006-01-02 15:04:05") + "'"
			switch db.Kind {
			case testdb.Postgres:
				value = "'" + at.Format(time.RFC3339) + "'"
			case testdb.SQLite:
				value = fmt.Sprint(at.UnixMicro())
			case testdb.MySQL:
			}
			for id, done := range map[string]string{good: value, spoilt: bad[i%len(bad)]} {
				_, err := db.ExecContext(ctx, "UPDATE outbox_event SET status = 1, done_at = "+done+" WHERE event_id = '"+id+"'")
				require.NoError(t, err)
			}
			want = append(want, good)
		}
		for _, look := range []int{1, 2, 5, 100} {
			q := outbox.DeliveredQuery{AggregateType: "Order", EventTypes: []outbox.EventType{"OrderPlaced"}, AfterDoneAt: place.AddDate(-2, 0, 0), Until: place.AddDate(5, 0, 0), Look: look, Limit: 100}
			var got []string
			ended := false
			for range 100 {
				found, err := store.Delivered(ctx, db.DB, q)
				require.NoError(t, err)
				for i := range found.Events {
					got = append(got, found.Events[i].EventID)
				}
				if q.AfterDoneAt, q.AfterEventID = found.DoneAt, found.EventID; found.End {
					ended = true
					break
				}
			}
			require.True(t, ended, "looks of %d", look)
			got = slices.DeleteFunc(got, func(id string) bool { return id[0] == 'b' }) // without done_at, created_at may count
			require.Equal(t, want, got, "looks of %d", look)
		}
	})
}

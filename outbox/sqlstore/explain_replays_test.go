package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A step of a replay looks at as many DONE rows as it may, from its place on, and at nothing else,
// whatever the statistics say.
func TestAReplayLooksAtAsManyRowsAsItMay(t *testing.T) {
	t.Parallel()
	for _, statistics := range []bool{true, false} {
		t.Run(fmt.Sprint("statistics ", statistics), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
				ctx, store := t.Context(), storeFor(db.Kind)
				require.NoError(t, store.CreateSchema(ctx, db.DB))
				now := time.Now().UTC().Truncate(time.Second)
				if statistics {
					loadTable(t, db, now)
				} else {
					noStatistics(t, db)
					loadRows(t, db, tableParts(now))
				}
				db.SetMaxOpenConns(1) // MySQL's counters are per session
				rec := &recorded{DB: db.DB}
				query := func(after time.Time, id string, eventType outbox.EventType) outbox.DeliveredQuery {
					return outbox.DeliveredQuery{
						AggregateType: "A", EventTypes: []outbox.EventType{eventType}, AfterDoneAt: after, AfterEventID: id,
						Until: now, Look: readBatch, Limit: readBatch,
					}
				}
				long := now.Add(-10_000 * time.Hour)
				first, err := store.Delivered(ctx, db.DB, query(long, "", "T"))
				require.NoError(t, err)
				place := first
				for range 20 {
					place, err = store.Delivered(ctx, db.DB, query(place.DoneAt, place.EventID, "T"))
					require.NoError(t, err)
				}
				for name, q := range map[string]outbox.DeliveredQuery{
					"from the start": query(long, "", "T"), "behind a place": query(place.DoneAt, place.EventID, "T"),
					"of a type that no event has": query(place.DoneAt, place.EventID, "Unknown"),
				} {
					rec.statements = nil
					cost := costOf(t, db, rec, func() {
						found, err := store.Delivered(ctx, rec, q)
						require.NoError(t, err, name)
						require.Equal(t, readBatch, found.Looked, name)
					})
					t.Logf("%s looks at %d rows", name, cost)
					require.LessOrEqual(t, cost, readLimit, "%s reads %d rows to look at %d", name, cost, readBatch)
				}
				ids := make([]string, readBatch)
				for i := range ids {
					ids[i] = fmt.Sprintf("p%08d", 100*i)
				}
				rec.statements = nil
				cost := costOf(t, db, rec, func() {
					added, err := store.Added(ctx, rec, ids)
					require.NoError(t, err)
					require.Equal(t, readBatch, added.Untried)
				})
				require.LessOrEqual(t, cost, readLimit, "added")
			})
		})
	}
}

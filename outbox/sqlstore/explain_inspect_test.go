package sqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// walks are the statuses of each walk of FindEvents, with a place in its middle.
func walks(now time.Time) map[string]outbox.EventQuery {
	all := map[string]outbox.EventQuery{}
	for name, walk := range map[string]struct {
		statuses []outbox.Status
		place    outbox.Cursor
	}{
		"all":           {nil, outbox.Cursor{EventID: "p00050000"}},
		"NEW and RETRY": {[]outbox.Status{outbox.StatusNew, outbox.StatusRetry}, outbox.Cursor{AvailableAt: now.Add(-time.Hour + 50*time.Second), CreatedAt: now, EventID: "p"}},
		"NEW":           {[]outbox.Status{outbox.StatusNew}, outbox.Cursor{AvailableAt: now.Add(-time.Hour + 50*time.Second), CreatedAt: now, EventID: "p"}},
		"DONE":          {[]outbox.Status{outbox.StatusDone}, outbox.Cursor{AvailableAt: now.Add(-2*time.Hour + 50*time.Second), EventID: "d"}},
		"DEAD":          {[]outbox.Status{outbox.StatusDead}, outbox.Cursor{AvailableAt: now.Add(-2*time.Hour + 500*time.Millisecond), EventID: "x"}},
		"DONE and DEAD": {[]outbox.Status{outbox.StatusDone, outbox.StatusDead}, outbox.Cursor{EventID: "d00050000"}},
	} {
		f := outbox.EventFilter{Statuses: walk.statuses}
		all[name+" from the start"] = outbox.EventQuery{EventFilter: f}
		all[name+" behind a place"] = outbox.EventQuery{EventFilter: f, After: f.Order().Next(walk.place)}
		f.Since, f.Until = now.Add(-100*time.Hour), now.Add(100*time.Hour)
		all[name+" between two times"] = outbox.EventQuery{EventFilter: f}
	}
	return all
}

func TestFindingEventsCostsABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind, sqlstore.WithSearchIndex())
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		now := time.Now().UTC().Truncate(time.Second)
		loadTable(t, db, now)
		db.SetMaxOpenConns(1) // MySQL's counters are per session
		rec := &recorded{DB: db.DB}
		cost := func(name string, limit int, call func() error) {
			rec.statements = nil
			n := costOf(t, db, rec, func() { require.NoError(t, call(), name) })
			require.LessOrEqual(t, n, limit, "%s reads %d rows", name, n)
			t.Logf("%s: %d rows", name, n)
		}
		for name, q := range walks(now) {
			q.Limit = readBatch
			cost(name, readLimit, func() error {
				page, err := store.FindEvents(ctx, rec, q)
				require.NotEmpty(t, page.Events, name)
				return err
			})
			q.EventType = "none"
			cost(name+", nothing found", 3*outbox.SearchLimit, func() error {
				_, err := store.FindEvents(ctx, rec, q)
				return err
			})
		}
		cost("one event", 2, func() error { _, err := store.FindEvent(ctx, rec, "d00000001"); return err })
		// MySQL reads both statuses, and counts what it reads of the subselects again.
		cost("nodes", 5*outbox.SearchLimit, func() error { _, err := store.Nodes(ctx, rec); return err })
		cost("dead letters by id", 20, func() error {
			_, err := store.QueryDead(ctx, rec, outbox.DeadQuery{DeadFilter: outbox.DeadFilter{EventIDs: []string{"x00000001", "x00000900"}}, Limit: 10})
			return err
		})
	})
}

// Each node lists the nodes once, when it starts.
func TestListingNodesReadsOnlyWhatIsDue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		tomorrow := make([]outbox.Envelope, 3_000)
		for i := range tomorrow {
			now := time.Now().UTC().Truncate(time.Second)
			tomorrow[i] = outbox.Envelope{
				EventID: fmt.Sprintf("t%08d", i), EventType: "Said", AggregateType: outbox.Global, Payload: outbox.RawJSON("{}"),
				OccurredAt: now, AvailableAt: now.Add(24 * time.Hour),
			}
		}
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, store.Insert(ctx, tx, tomorrow, "", time.Time{}))
		require.NoError(t, tx.Commit())
		analyze(t, db)
		db.SetMaxOpenConns(1) // MySQL's counters are per session
		rec := &recorded{DB: db.DB}
		n := costOf(t, db, rec, func() { _, err := store.Nodes(ctx, rec); require.NoError(t, err) })
		require.LessOrEqual(t, n, 100, "%d rows", n)
	})
}

// An aggregate id that many rows have, which all are the oldest: to a planner, the order of
// the primary key looks like the shorter way to the latest of them.
func TestTheSearchIndexIsUsedWhateverTheStatistics(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind, sqlstore.WithSearchIndex())
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		now := time.Now().UTC().Truncate(time.Second)
		loadTable(t, db, now, column{"aggregate_id", "CASE WHEN event_id < 'd00050000' THEN 'hot' ELSE event_id END"})
		db.SetMaxOpenConns(1)
		rec := &recorded{DB: db.DB}
		for _, statuses := range [][]outbox.Status{nil, {outbox.StatusDone}} {
			for _, after := range []string{"", outbox.ByEventID.Next(outbox.Cursor{EventID: "d00020000"})} {
				rec.statements = nil
				name := fmt.Sprintf("%v behind %q", statuses, after)
				cost := costOf(t, db, rec, func() {
					page, err := store.FindEvents(ctx, rec, outbox.EventQuery{EventFilter: outbox.EventFilter{AggregateID: "hot", Statuses: statuses}, Limit: readBatch, After: after})
					require.NoError(t, err)
					require.Len(t, page.Events, readBatch)
					require.True(t, strings.HasPrefix(page.Events[0].EventID, "d000"))
				})
				require.LessOrEqual(t, cost, readLimit, name)
			}
		}
	})
}

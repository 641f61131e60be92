package sqlstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
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
				require.NotEmpty(t, page.Rows, name)
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
			_, err := store.QueryDead(ctx, rec, outbox.DeadRowsQuery{DeadFilter: outbox.DeadFilter{EventIDs: []string{"x00000001", "x00000900"}}, Limit: 10})
			return err
		})
	})
}

// A page behind all times asks for the rows whose time cannot be read. Without any, that costs
// next to nothing; nor does a page that begins at such a row.
func TestLookingForTimesThatCannotBeReadCostsLittle(t *testing.T) {
	t.Parallel()
	for _, statistics := range []bool{true, false} {
		t.Run(fmt.Sprintf("statistics=%v", statistics), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
				ctx, store := t.Context(), storeFor(db.Kind)
				require.NoError(t, store.CreateSchema(ctx, db.DB))
				now := time.Now().UTC().Truncate(time.Second)
				if !statistics {
					noStatistics(t, db)
				}
				loadRows(t, db, append(tableParts(now), part{"y", doneRows, 3, now.Add(-3 * time.Hour), now, now.Add(-3 * time.Hour)}))
				if statistics {
					analyze(t, db)
				}
				db.SetMaxOpenConns(1) // MySQL's counters are per session
				rec := &recorded{DB: db.DB}
				cost := func(name string, call func()) {
					rec.statements = nil
					n := costOf(t, db, rec, call)
					require.LessOrEqual(t, n, readLimit, name)
					t.Logf("%s: %d rows", name, n)
				}
				for _, walk := range []struct {
					statuses []outbox.Status
					last     time.Duration // is behind all others
					middle   outbox.Cursor
				}{
					{[]outbox.Status{outbox.StatusNew, outbox.StatusRetry}, 100 * time.Hour, outbox.Cursor{AvailableAt: now.Add(-time.Hour + 50*time.Second), EventID: "p00050000"}},
					{[]outbox.Status{outbox.StatusNew}, 100 * time.Hour, outbox.Cursor{AvailableAt: now.Add(-time.Hour + 50*time.Second), EventID: "p00050000"}},
					{[]outbox.Status{outbox.StatusDone}, -100 * time.Hour, outbox.Cursor{AvailableAt: now.Add(-2*time.Hour + 50*time.Second), EventID: "d00050000"}},
					{[]outbox.Status{outbox.StatusDead}, -100 * time.Hour, outbox.Cursor{AvailableAt: now.Add(-3*time.Hour + 50*time.Second), EventID: "y00050000"}},
				} {
					q := outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: walk.statuses}, Limit: readBatch}
					finds := func(name string, place outbox.Cursor, events int) {
						if q.After = ""; place.EventID != "" {
							q.After = q.Order().Next(place)
						}
						cost(fmt.Sprint(walk.statuses, " ", name), func() {
							page, err := store.FindEvents(ctx, rec, q)
							require.NoError(t, err)
							require.Len(t, page.Rows, events, name)
						})
					}
					finds("from the start", outbox.Cursor{}, readBatch)
					finds("behind a time that is not exact", walk.middle, readBatch)
					walk.middle.CreatedAt = now
					finds("behind a time", walk.middle, readBatch)
					finds("behind all times", outbox.Cursor{AvailableAt: now.Add(walk.last), CreatedAt: now, EventID: "a"}, 0)
					finds("among the undated", outbox.Cursor{EventID: "a"}, 0)
				}
				cost("dead letters behind a place", func() {
					letters, err := store.QueryDead(ctx, rec, outbox.DeadRowsQuery{Limit: readBatch, AfterDiedAt: now.Add(-3*time.Hour + 50*time.Second), AfterEventID: "y00050000"})
					require.NoError(t, err)
					require.Len(t, letters, readBatch)
				})
				cost("the first dead letters", func() {
					letters, err := store.QueryDead(ctx, rec, outbox.DeadRowsQuery{Limit: readBatch})
					require.NoError(t, err)
					require.Len(t, letters, readBatch)
				})
			})
		})
	}
}

// After an incident most rows may be dead. PostgreSQL then takes a third of the table for
// rows whose time cannot be read.
func TestTheFirstDeadLettersOfATableOfDeadLettersCostLittle(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		now := time.Now().UTC().Truncate(time.Second)
		loadRows(t, db, []part{{"y", doneRows, 3, now.Add(-3 * time.Hour), now, now.Add(-3 * time.Hour)}})
		analyze(t, db)
		db.SetMaxOpenConns(1) // MySQL's counters are per session
		rec := &recorded{DB: db.DB}
		for name, read := range map[string]func() error{
			"dead letters": func() error {
				letters, err := store.QueryDead(ctx, rec, outbox.DeadRowsQuery{Limit: readBatch})
				require.Len(t, letters, readBatch)
				return err
			},
			"dead events": func() error {
				page, err := store.FindEvents(ctx, rec, outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusDead}}, Limit: readBatch})
				require.Len(t, page.Rows, readBatch)
				return err
			},
		} {
			rec.statements = nil
			n := costOf(t, db, rec, func() { require.NoError(t, read()) })
			require.LessOrEqual(t, n, readLimit, name)
			if db.Kind == testdb.Postgres {
				for _, statement := range rec.statements {
					requireCheap(t, db, statement)
				}
			}
		}
	})
}

// requireCheap requires that PostgreSQL expects little work. An expensive plan starts the JIT compiler and
// parallel workers, which take a tenth of a second, also if it reads no row.
func requireCheap(t *testing.T, db *testdb.DB, s statement) {
	t.Helper()
	var plans []struct {
		Plan struct {
			Cost float64 `json:"Total Cost"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(plannedBy(t, db, s)), &plans))
	require.Less(t, plans[0].Plan.Cost, 5_000.0, s.text)
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
					require.Len(t, page.Rows, readBatch)
					require.True(t, strings.HasPrefix(page.Rows[0].EventID, "d000"))
				})
				require.LessOrEqual(t, cost, readLimit, name)
			}
		}
	})
}

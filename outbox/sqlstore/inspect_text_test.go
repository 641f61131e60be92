package sqlstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// A search reads as many rows as it says, or as it returns, with and without statistics.
func TestSearchingByTextCostsABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	for _, statistics := range []bool{true, false} {
		t.Run(fmt.Sprintf("statistics=%v", statistics), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
				ctx, store := t.Context(), storeFor(db.Kind)
				require.NoError(t, store.CreateSchema(ctx, db.DB))
				now := time.Now().UTC().Truncate(time.Second)
				if statistics {
					loadTable(t, db, now, column{"last_error", "'connection refused'"})
				} else {
					noStatistics(t, db)
					loadRows(t, db, tableParts(now), column{"last_error", "'connection refused'"})
				}
				db.SetMaxOpenConns(1) // MySQL's counters are per session
				rec := &recorded{DB: db.DB}
				finds := func(f outbox.EventFilter, after string, limit, events int) {
					t.Helper()
					rec.statements = nil
					name := fmt.Sprintf("%v, ids %q, errors %q, leased %v, behind %q", f.Statuses, f.IDPrefix, f.ErrorText, f.Leased, after)
					q := outbox.EventQuery{EventFilter: f, After: after, Limit: readBatch}
					looked := 0
					n := costOf(t, db, rec, func() {
						page, err := store.FindEvents(ctx, rec, q)
						require.NoError(t, err, name)
						require.Len(t, page.Rows, events, name)
						looked = page.Looked
					})
					require.LessOrEqual(t, n, limit, name)
					t.Logf("%s: %d rows, looked at %d", name, n, looked)
				}
				middle := outbox.ByEventID.Next(outbox.Cursor{EventID: "p00050000"})
				finds(outbox.EventFilter{IDPrefix: "p"}, "", readLimit, readBatch)
				finds(outbox.EventFilter{IDPrefix: "p"}, middle, readLimit, readBatch)
				finds(outbox.EventFilter{IDPrefix: "p0005000"}, "", readLimit, 10)
				finds(outbox.EventFilter{IDPrefix: "p00050000"}, "", readLimit, 1)
				finds(outbox.EventFilter{IDPrefix: "none"}, "", readLimit, 0)
				finds(outbox.EventFilter{IDPrefix: "d000", Statuses: []outbox.Status{outbox.StatusDone}}, "", readLimit, readBatch)
				finds(outbox.EventFilter{IDPrefix: "p", ErrorText: "none"}, "", 3*outbox.SearchLimit, 0)
				if !statistics {
					return // the other walks are those of TestFindingEventsCostsABoundedNumberOfRows
				}
				for _, statuses := range [][]outbox.Status{nil, {outbox.StatusNew, outbox.StatusRetry}, {outbox.StatusDone}, {outbox.StatusDead}} {
					looksAt := 3 * outbox.SearchLimit
					finds(outbox.EventFilter{ErrorText: "REFUSED", Statuses: statuses}, "", readLimit, readBatch)
					finds(outbox.EventFilter{ErrorText: "none", Statuses: statuses}, "", looksAt, 0)
					finds(outbox.EventFilter{Leased: true, Statuses: statuses}, "", looksAt, 0)
				}
				waiting := []outbox.Status{outbox.StatusNew, outbox.StatusRetry}
				finds(outbox.EventFilter{DueAfter: now.Add(time.Minute), Statuses: waiting}, "", readLimit, readBatch)
				finds(outbox.EventFilter{DueBefore: now, Statuses: waiting}, "", readLimit, readBatch)
			})
		})
	}
}

// collated are tables whose ids are in the order of a language.
var collated = map[testdb.Kind][]string{
	testdb.Postgres: {`ALTER TABLE outbox_event ALTER COLUMN event_id TYPE VARCHAR(36) COLLATE "en-US-x-icu"`},
	testdb.MySQL:    {"ALTER TABLE outbox_event MODIFY event_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL"},
}

// In the order of a language, other ids lie between those that begin with a text, and "9" may lie
// behind ":". A search then looks at all rows, until there is an index.
func TestIDsInTheOrderOfALanguageAreFoundByTheirBeginning(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		ids := []string{"01KQ9", "01KQ9a", "01KQ9-b", "01KQ9 ", "01KQ:", "01kq9", "a", "A1", "a-1", "ab", "ä", "Äb", "z", "Z9"}
		if db.Kind == testdb.MySQL { // there these ids are duplicates of others
			ids = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains([]string{"01kq9", "01KQ9 ", "ä", "Äb"}, id) })
		}
		envs := make([]outbox.Envelope, len(ids))
		for i, id := range ids {
			envs[i] = outbox.Envelope{EventID: id, EventType: "T", AggregateType: outbox.Global, Payload: outbox.RawJSON("{}"), OccurredAt: time.Now(), AvailableAt: time.Now()}
		}
		require.NoError(t, store.Insert(ctx, db.DB, envs, "", time.Time{}))
		for _, statement := range collated[db.Kind] {
			_, err := db.ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		finds := func() {
			t.Helper()
			for _, prefix := range append(slices.Clone(ids), "01KQ", "01KQ9", "0", "A", "a", "Ä", "Z", "none") {
				var want []string
				for _, id := range ids {
					if strings.HasPrefix(id, prefix) {
						want = append(want, id)
					}
				}
				q := outbox.EventQuery{EventFilter: outbox.EventFilter{IDPrefix: prefix}, Limit: 2}
				var got []string
				for more := true; more; more = q.After != "" {
					page, err := store.FindEvents(ctx, db.DB, q)
					require.NoError(t, err)
					for i := range page.Rows {
						got = append(got, page.Rows[i].EventID)
					}
					q.After = page.Next
				}
				require.ElementsMatch(t, want, got, prefix)
			}
		}
		finds()
		loadRows(t, db, []part{{"d", 2 * outbox.SearchLimit, 1, time.Now(), time.Now(), time.Now()}})
		search := outbox.EventQuery{EventFilter: outbox.EventFilter{IDPrefix: "01KQ9"}, Limit: 10}
		page, err := store.FindEvents(ctx, db.DB, search)
		require.NoError(t, err)
		require.Equal(t, outbox.SearchLimit, page.Looked)
		if db.Kind == testdb.MySQL {
			require.Nil(t, page.Missing, "no index makes it quick")
			return
		}
		require.NotNil(t, page.Missing)
		require.Equal(t, `CREATE INDEX CONCURRENTLY IF NOT EXISTS "idx_outbox_event_prefix" ON "outbox_event" (event_id COLLATE "C")`, page.Missing.DDL)
		require.Empty(t, page.Missing.Option)
		_, err = db.ExecContext(ctx, page.Missing.DDL)
		require.NoError(t, err)
		finds()
		page, err = store.FindEvents(ctx, db.DB, search)
		require.NoError(t, err)
		require.Nil(t, page.Missing)
		require.Equal(t, 4, page.Looked)
		db.SetMaxOpenConns(1)
		rec := &recorded{DB: db.DB}
		require.LessOrEqual(t, costOf(t, db, rec, func() { _, err := store.FindEvents(ctx, rec, search); require.NoError(t, err) }), readLimit)
	})
}

// A search by aggregate id that ends before its time names the index.
func TestAMissingSearchIndexIsNamed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		search := outbox.EventQuery{EventFilter: outbox.EventFilter{AggregateID: "o-1"}, Limit: 10}
		missing := func(store *sqlstore.Store, q outbox.EventQuery) *outbox.MissingIndex {
			t.Helper()
			page, err := store.FindEvents(ctx, db.DB, q)
			require.NoError(t, err)
			return page.Missing
		}
		require.Nil(t, missing(store, search), "the table is small")
		loadRows(t, db, []part{{"d", 2 * outbox.SearchLimit, 1, time.Now(), time.Now(), time.Now()}})
		for _, statuses := range [][]outbox.Status{nil, {outbox.StatusDone}} {
			search.Statuses = statuses
			m := missing(store, search)
			require.NotNil(t, m, statuses)
			require.Equal(t, "sqlstore.WithSearchIndex()", m.Option)
			require.Equal(t, db.Kind == testdb.Postgres, strings.HasPrefix(m.DDL, "CREATE INDEX CONCURRENTLY IF NOT EXISTS "), m.DDL)
			require.Contains(t, m.DDL, "idx_outbox_event_search")
			require.Contains(t, m.String(), m.DDL+"; then give the store the option sqlstore.WithSearchIndex()")
			require.Nil(t, missing(store, outbox.EventQuery{EventFilter: outbox.EventFilter{TenantID: "t", Statuses: statuses}, Limit: 10}), "no index is for tenants")
			require.Nil(t, missing(store, outbox.EventQuery{EventFilter: outbox.EventFilter{AggregateID: "o-1", IDPrefix: "d0", Statuses: statuses}, Limit: 10}), "the primary key finds it")
		}
		_, err := db.ExecContext(ctx, missing(store, search).DDL)
		require.NoError(t, err)
		require.Nil(t, missing(storeFor(db.Kind, sqlstore.WithSearchIndex()), search))
	})
}

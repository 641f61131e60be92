package sqlstore_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// noTimes are values of a time column that are no time, as SQL, and a year before those that
// an outbox writes. Some lie among the times.
var noTimes = map[testdb.Kind][]string{
	testdb.Postgres: {"'-infinity'", "'infinity'", "'10000-01-01'", "'0044-03-15 BC'", "'0500-01-01'", "'0001-01-01'"},
	testdb.MySQL:    {"'0000-00-00'", "'2024-00-00'", "'2024-02-00'", "'2024-02-31'", "'0500-01-01'", "'0001-01-01'"},
	testdb.SQLite:   {"'abc'", "x'ff'", "2460000.5", "2460000.25", "2460000", "-2.5", "-9000000000000000000", "1e300", "-46388678400000000", "-62135596700000000"},
}

// spoilTimes writes each of those values to a column of several rows, of which it leaves every
// third one as it is.
func spoilTimes(t *testing.T, db *testdb.DB, column string, ids []string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	exec := func(query string) {
		_, err := conn.ExecContext(t.Context(), query)
		require.NoError(t, err, query)
	}
	if db.Kind == testdb.MySQL { // the reads refuse what the writer does not
		db.SetMaxOpenConns(1)
		exec("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
		defer exec("SET SESSION sql_mode = 'TRADITIONAL'")
	}
	values := noTimes[db.Kind]
	for i, id := range ids {
		if i%3 != 0 {
			exec(fmt.Sprintf("UPDATE outbox_event SET %s = %s WHERE event_id = '%s'", column, values[i/3%len(values)], id))
		}
	}
}

// Dead letters whose time of death cannot be read come first, page by page, each once. All
// are counted and deleted.
func TestDeadLettersWhoseTimeCannotBeReadAreListedOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		const rows = 24
		insert(t, store, db, events("e", rows), "", time.Time{})
		_, err := db.ExecContext(ctx, "UPDATE outbox_event SET status = 3")
		require.NoError(t, err)
		ids := scanIDs(t, db)
		spoilTimes(t, db, "done_at", ids)
		spoilTimes(t, db, "created_at", ids[:rows/2])
		dead, err := outbox.NewDeadLetters(db.DB, store)
		require.NoError(t, err)
		for _, filter := range []outbox.DeadFilter{{}, {AggregateType: "Order"}, {EventIDs: ids}, {Until: time.Now().Add(time.Hour)}} {
			for _, limit := range []int{1, 3, rows} {
				seen, query := map[string]bool{}, outbox.DeadQuery{DeadFilter: filter, Limit: limit}
				for {
					page, err := dead.Find(ctx, query)
					require.NoError(t, err)
					for _, l := range page.Rows {
						require.False(t, seen[l.EventID], "%v is listed again, in pages of %d", l.EventID, limit)
						seen[l.EventID] = true
					}
					if query.After = page.Next; query.After == "" {
						break
					}
				}
				require.Len(t, seen, rows, "%+v in pages of %d", filter, limit)
			}
		}
		n, err := dead.Count(ctx, outbox.DeadFilter{})
		require.NoError(t, err)
		require.EqualValues(t, rows, n)
		deleted, err := dead.DeleteAll(ctx, outbox.DeadFilter{}, 2)
		require.NoError(t, err)
		require.Equal(t, rows, deleted.Count)
		restored, err := dead.Restore(ctx, deleted.ID)
		require.NoError(t, err)
		require.Equal(t, rows, restored)
		n, err = dead.Count(ctx, outbox.DeadFilter{})
		require.NoError(t, err)
		require.EqualValues(t, rows, n, "also the letters whose time of death cannot be read")
		again, err := dead.DeleteAll(ctx, outbox.DeadFilter{}, 2)
		require.NoError(t, err)
		require.Equal(t, rows, again.Count)
	})
}

// Pages of events have each event once, in whatever order they are, and end.
func TestEventsWhoseTimeCannotBeReadAreFoundOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		const each = 24
		insert(t, store, db, events("e", 4*each), "", time.Time{})
		ids := scanIDs(t, db)
		for i, id := range ids {
			done := "NULL"
			if i%4 == int(outbox.StatusDone) || i%8 == int(outbox.StatusDead) {
				done = "created_at"
			}
			_, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE outbox_event SET status = %d, done_at = %s WHERE event_id = '%s'", i%4, done, id))
			require.NoError(t, err)
		}
		for _, column := range []string{"done_at", "available_at", "created_at"} {
			spoilTimes(t, db, column, ids)
			findsOnce(t, store, db, each, column)
		}
		page, err := store.FindEvents(ctx, db.DB, outbox.EventQuery{
			EventFilter: outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusDead}, Since: time.Date(1, 1, 3, 0, 0, 0, 0, time.UTC)}, Limit: each,
		})
		require.NoError(t, err)
		require.NotEmpty(t, page.Rows)
		require.Less(t, len(page.Rows), each, "Since leaves out events whose time cannot be read")
	})
}

func findsOnce(t *testing.T, store *sqlstore.Store, db *testdb.DB, each int, column string) {
	t.Helper()
	type statuses []outbox.Status
	for _, filter := range []statuses{
		{outbox.StatusDead},
		{outbox.StatusDone},
		{outbox.StatusDone, outbox.StatusDead},
		{outbox.StatusNew},
		{outbox.StatusNew, outbox.StatusRetry},
		{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead},
	} {
		for _, limit := range []int{1, 3, 4 * each} {
			seen, pages := map[string]bool{}, 0
			q := outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: filter, Until: time.Now().Add(time.Hour)}, Limit: limit}
			if q.Order() == outbox.ByEventID {
				q.Until = time.Time{}
			}
			for {
				page, err := store.FindEvents(t.Context(), db.DB, q)
				require.NoError(t, err)
				for i := range page.Rows {
					id := page.Rows[i].EventID
					require.False(t, seen[id], "%s: %v is found again among %v, in pages of %d", column, id, filter, limit)
					seen[id] = true
				}
				if q.After = page.Next; page.Next == "" {
					break
				}
				pages++
				require.LessOrEqual(t, pages, 4*each, "%s: pages without end for %v", column, filter)
			}
			require.Len(t, seen, each*len(filter), "%s: %v in pages of %d", column, filter, limit)
		}
	}
}

func scanIDs(t *testing.T, db *testdb.DB) (ids []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT event_id FROM outbox_event ORDER BY event_id")
	require.NoError(t, err)
	defer func(rows *sql.Rows) { require.NoError(t, rows.Close()) }(rows)
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}

// The report of a process whose end is no time has ended, and is deleted.
func TestAReportWhoseEndIsNoTimeHasEnded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		values := append([]string{"'9999-12-31 23:59:59'"}, noTimes[db.Kind]...)
		db.SetMaxOpenConns(1)
		mode := func(mode string) { // the store's statements are strict, as those of most servers
			if db.Kind == testdb.MySQL {
				_, err := db.ExecContext(ctx, "SET SESSION sql_mode = '"+mode+"'")
				require.NoError(t, err)
			}
		}
		owner := "node-0"
		for i, value := range values {
			require.NoError(t, store.Announce(ctx, db.DB, outbox.Node{Owner: owner}, time.Hour))
			mode("ALLOW_INVALID_DATES")
			_, err := db.ExecContext(ctx, "UPDATE outbox_event_control SET expires_at = "+value)
			require.NoError(t, err, value)
			mode("TRADITIONAL")
			nodes, err := store.Nodes(ctx, db.DB)
			require.NoError(t, err)
			require.Len(t, nodes, 1, value)
			require.False(t, nodes[0].Live, value)

			next := fmt.Sprintf("node-%d", i+1)
			require.NoError(t, store.Announce(ctx, db.DB, outbox.Node{Owner: next}, time.Hour))
			nodes, err = store.Nodes(ctx, db.DB)
			require.NoError(t, err)
			require.Len(t, nodes, 1, value)
			require.Equal(t, next, nodes[0].Owner)
			owner = next
		}
	})
}

package sqlstore_test

import (
	"context"
	"database/sql"
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

// The table that the reads are measured on.
const (
	doneRows    = 100_000
	pendingRows = 100_000
	futureRows  = 10_000
	deadRows    = 1_000
)

// Reading must cost what it returns: a statement for a batch of 100 may examine a
// few rows more, never the backlog, the DONE rows or future rows.
const (
	readBatch = 100
	readLimit = 5 * readBatch
)

// recorded is a pool that records the statements of one call.
type recorded struct {
	*sql.DB
	statements []statement
}

type statement struct {
	text string
	args []any
}

func (r *recorded) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	r.statements = append(r.statements, statement{q, args})
	return r.DB.ExecContext(ctx, q, args...)
}

func (r *recorded) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	r.statements = append(r.statements, statement{q, args})
	return r.DB.QueryContext(ctx, q, args...)
}

func TestReadingCostsWhatItReturns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) { readingCosts(t, db, true) })
}

// After a restore, an upgrade or a bulk load a database has no statistics of the table.
func TestReadingCostsWhatItReturnsWithoutStatistics(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) { readingCosts(t, db, false) })
}

func readingCosts(t *testing.T, db *testdb.DB, statistics bool) {
	ctx := t.Context()
	store := storeFor(db.Kind, sqlstore.WithAgeIndex())
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
	middle := outbox.Cursor{AvailableAt: now.Add(-time.Hour), CreatedAt: now.Add(-time.Hour), EventID: "p00050000"}
	place := func(n int) outbox.Cursor {
		after := time.Duration(n) * time.Millisecond
		return outbox.Cursor{AvailableAt: now.Add(after - time.Hour), CreatedAt: now.Add(after - time.Hour), EventID: fmt.Sprintf("p%08d", n)}
	}
	from, upto := place(50_000), place(50_000+readBatch)
	elsewhere := []outbox.EventKind{{AggregateType: "A", EventType: "U"}, {AggregateType: outbox.Global, EventType: "T"}}
	calls := []struct {
		name string
		call func() (int, error)
	}{
		{"poll", func() (int, error) {
			b, err := store.Poll(ctx, rec, outbox.PollQuery{Now: now, Limit: readBatch})
			return b.Len(), err
		}},
		{"poll behind a cursor", func() (int, error) {
			b, err := store.Poll(ctx, rec, outbox.PollQuery{Now: now, Limit: readBatch, After: middle, CreatedBefore: now})
			return b.Len(), err
		}},
		{"poll between cursors", func() (int, error) {
			b, err := store.Poll(ctx, rec, outbox.PollQuery{Now: now, Limit: 10 * readBatch, After: from, Upto: upto, FreshOnly: true})
			return b.Len(), err
		}},
		{"reach", func() (int, error) {
			r, err := store.Reach(ctx, rec, outbox.PollQuery{Now: now, Limit: readBatch, LeaseDuration: time.Hour})
			return r.Fresh, err
		}},
		{"reach between cursors", func() (int, error) {
			r, err := store.Reach(ctx, rec, outbox.PollQuery{Now: now, Limit: 10 * readBatch, After: from, Upto: upto, LeaseDuration: time.Hour})
			return r.Fresh, err
		}},
		{"claim between cursors", func() (int, error) {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: 10 * readBatch, Lease: "me/0", LeaseDuration: time.Hour, After: from, Upto: upto, Move: true})
			return b.Len(), err
		}},
		{"claim of expired leases between cursors, of which there are none", func() (int, error) {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: 10 * readBatch, Lease: "me/0", LeaseDuration: time.Hour, After: from, Upto: upto, ExpiredOnly: true})
			return readBatch + b.Len(), err
		}},
		{"claim", func() (int, error) {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/1", LeaseDuration: time.Hour})
			return b.Len(), err
		}},
		{"claim of fresh rows", func() (int, error) {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/1", LeaseDuration: time.Hour, FreshOnly: true})
			return b.Len(), err
		}},
		{"claim behind a cursor", func() (int, error) {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/2", LeaseDuration: time.Hour, FreshOnly: true, After: middle})
			return b.Len(), err
		}},
		{"poll without some kinds", func() (int, error) {
			b, err := store.Poll(ctx, rec, outbox.PollQuery{Now: now, Limit: readBatch, Except: elsewhere})
			return b.Len(), err
		}},
		{"claim without some kinds", func() (int, error) {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/3", LeaseDuration: time.Hour, FreshOnly: true, Except: elsewhere})
			return b.Len(), err
		}},
		{"mark of many leases", func() (int, error) {
			left, err := store.Mark(ctx, rec, outbox.OutcomeDone, marksOfManyLeases())
			return len(left), err
		}},
		{"deletion of many leases", func() (int, error) {
			left, err := store.Mark(ctx, rec, outbox.OutcomeDelete, marksOfManyLeases())
			return len(left), err
		}},
		{"mark of many due times", func() (int, error) {
			left, err := store.Mark(ctx, rec, outbox.OutcomeDone, marksOfManyDueTimes(now))
			return len(left), err
		}},
		{"deletion of many due times", func() (int, error) {
			left, err := store.Mark(ctx, rec, outbox.OutcomeDelete, marksOfManyDueTimes(now))
			return len(left), err
		}},
		{"next due", func() (int, error) {
			next, err := store.NextDue(ctx, rec, now)
			require.False(t, next.IsZero())
			return readBatch, err
		}},
		{"dead letters", func() (int, error) {
			letters, err := store.QueryDead(ctx, rec, outbox.DeadRowsQuery{Limit: readBatch})
			return len(letters), err
		}},
		{"events found", func() (int, error) {
			page, err := store.FindEvents(ctx, rec, outbox.EventQuery{Limit: readBatch, EventFilter: outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusNew}}})
			return len(page.Rows), err
		}},
		{"purge", func() (int, error) {
			purged, err := store.Purge(ctx, rec, outbox.PurgeQuery{Before: now, Limit: readBatch})
			return purged.Rows, err
		}},
		{"purge with nothing to do", func() (int, error) {
			purged, err := store.Purge(ctx, rec, outbox.PurgeQuery{Before: now.Add(-240 * time.Hour), Limit: readBatch})
			return purged.Rows + readBatch, err
		}},
		{"purge of a kind from a place", func() (int, error) {
			purged, err := store.Purge(ctx, rec, outbox.PurgeQuery{
				Before: now, Limit: readBatch, Status: outbox.StatusDone, Since: now.Add(-240 * time.Hour), Except: []outbox.EventKind{{AggregateType: "B", EventType: "U"}},
			})
			return purged.Rows, err
		}},
		{"purge of a kind with nothing behind a place", func() (int, error) {
			purged, err := store.Purge(ctx, rec, outbox.PurgeQuery{
				Before: now, Limit: readBatch, Status: outbox.StatusDone, Since: now.Add(-time.Microsecond), Only: []outbox.EventKind{{AggregateType: "B", EventType: "U"}},
			})
			return purged.Rows + readBatch, err
		}},
		{"purge by age", func() (int, error) {
			purged, err := store.Purge(ctx, rec, outbox.PurgeQuery{Before: now.Add(-90 * time.Minute), ByAge: true, Limit: readBatch})
			return purged.Rows, err
		}},
	}
	for _, c := range calls {
		rec.statements = nil
		cost := costOf(t, db, rec, func() {
			n, err := c.call()
			require.NoError(t, err, c.name)
			require.Equal(t, readBatch, n, c.name)
		})
		require.LessOrEqual(t, cost, readLimit, "%s reads %d rows to return %d", c.name, cost, readBatch)
		t.Logf("%s looks at %d rows", c.name, cost)
	}
	cost := costOf(t, db, rec, func() {
		st, err := store.Stats(ctx, rec, now, nil)
		require.NoError(t, err)
		require.InDelta(t, pendingRows, st.Due, readLimit)
	})
	require.LessOrEqual(t, cost, 3*outbox.StatsLimit, "stats stop counting")
	rec.statements = nil
	cost = costOf(t, db, rec, func() {
		_, err := store.DueKinds(ctx, rec, outbox.DueKindsQuery{Now: now, Limits: []outbox.DueLimit{{Kind: outbox.EventKind{AggregateType: "B", EventType: "U"}, Before: now.Add(-time.Hour)}}})
		require.NoError(t, err)
	})
	t.Logf("due kinds look at %d rows", cost)
	require.LessOrEqual(t, cost, 4*outbox.StatsLimit, "due kinds stop counting; MySQL's cost has the groups' table too")
	if db.Kind == testdb.Postgres {
		rec.statements = nil
		_, err := store.Poll(ctx, rec, outbox.PollQuery{Now: now, Limit: readBatch, Except: []outbox.EventKind{{AggregateType: "A", EventType: "T"}}})
		require.NoError(t, err)
		require.NotContains(t, plannedBy(t, db, rec.statements[0]), "Sort", "statistics say that almost no row is of another kind")
	}
}

// noStatistics keeps the database from making statistics of the table.
func noStatistics(t testing.TB, db *testdb.DB) {
	t.Helper()
	statement := map[testdb.Kind]string{
		testdb.Postgres: "ALTER TABLE outbox_event SET (autovacuum_enabled = false)",
		testdb.MySQL:    "ALTER TABLE outbox_event STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0",
		testdb.SQLite:   "SELECT 1", // it makes none by itself
	}
	_, err := db.ExecContext(t.Context(), statement[db.Kind])
	require.NoError(t, err)
}

// With nothing but pending rows, a status alone looks like no worse a start than the cursor.
func TestReadingBehindACursorStartsThere(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		now := time.Now().UTC().Truncate(time.Second)
		due := now.Add(-time.Hour)
		loadParts(t, db, []part{{"p", pendingRows, 0, due, due, time.Time{}}})
		db.SetMaxOpenConns(1)
		rec := &recorded{DB: db.DB}
		at := due.Add(pendingRows / 5 * time.Millisecond)
		after := outbox.Cursor{AvailableAt: at, CreatedAt: at, EventID: fmt.Sprintf("p%08d", pendingRows/5)}
		for name, call := range map[string]func() (outbox.Batch, error){
			"poll": func() (outbox.Batch, error) {
				return store.Poll(ctx, rec, outbox.PollQuery{Now: now, Limit: readBatch, After: after})
			},
			"claim": func() (outbox.Batch, error) {
				return store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/1", LeaseDuration: time.Hour, FreshOnly: true, After: after})
			},
		} {
			rec.statements = nil
			cost := costOf(t, db, rec, func() {
				b, err := call()
				require.NoError(t, err, name)
				require.Equal(t, readBatch, b.Len(), name)
			})
			t.Logf("%s looks at %d rows", name, cost)
			require.LessOrEqual(t, cost, readLimit, "%s reads %d rows to return %d", name, cost, readBatch)
		}
	})
}

// PostgreSQL thinks that rows of a table larger than effective_cache_size are far apart on
// the disk when their due times are not in the order of their writes, as those of retries.
func TestReadingALargeTableSortsNothing(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	ctx := t.Context()
	store := storeFor(db.Kind)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		"INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, status, available_at, created_at)" +
			" SELECT lpad(i::text, 8, '0'), 'T', 'A', '{}', 2, now() - i * 7919 % 100000 * INTERVAL '1 second', now() - INTERVAL '2 days' FROM generate_series(1, 100000) AS s (i)",
		"ANALYZE outbox_event",
		"SET effective_cache_size = '1MB'",
	} {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err)
	}
	now := time.Now().Add(time.Minute)
	rec := &recorded{DB: db.DB}
	for name, call := range map[string]func() error{
		"poll": func() error {
			_, err := store.Poll(ctx, rec, outbox.PollQuery{Now: now, Limit: readBatch})
			return err
		},
		"claim": func() error {
			_, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/1", LeaseDuration: time.Hour, FreshOnly: true})
			return err
		},
		"events found": func() error {
			_, err := store.FindEvents(ctx, rec, outbox.EventQuery{Limit: readBatch, EventFilter: outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusRetry}}})
			return err
		},
		"leases": func() error {
			_, err := store.Nodes(ctx, rec)
			return err
		},
	} {
		rec.statements = nil
		require.NoError(t, call(), name)
		for _, s := range rec.statements {
			require.NotContains(t, plannedBy(t, db, s), `"Sort"`, name)
		}
	}
}

// A table of MySQL whose index has another name is read without it.
func TestReadingNeedsNoIndexOfThatName(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[1])
	ctx := t.Context()
	store := storeFor(db.Kind)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	_, err := db.ExecContext(ctx, "ALTER TABLE outbox_event DROP INDEX idx_outbox_event_due")
	require.NoError(t, err)
	now := time.Now().UTC().Truncate(time.Second)
	loadRows(t, db, []part{{"p", 10, 0, now.Add(-time.Hour), now.Add(-time.Hour), time.Time{}}})
	polled, err := store.Poll(ctx, db.DB, outbox.PollQuery{Now: now, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 10, polled.Len())
	claimed, err := store.Claim(ctx, db.DB, outbox.ClaimQuery{Now: now, Limit: 10, Lease: "me/1", LeaseDuration: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 10, claimed.Len())
}

// loadTable fills the table: DONE rows, due rows, future rows, and dead ones.
func loadTable(t *testing.T, db *testdb.DB, now time.Time, columns ...column) {
	t.Helper()
	loadParts(t, db, tableParts(now), columns...)
}

func tableParts(now time.Time) []part {
	hour := func(n time.Duration) time.Time { return now.Add(n * time.Hour) }
	return []part{
		{"d", doneRows, 1, hour(-2), hour(-2), hour(-2)},
		{"p", pendingRows * 9 / 10, 0, hour(-1), hour(-1), time.Time{}},
		{"r", pendingRows / 10, 2, hour(-1), now.Add(-30 * time.Minute), time.Time{}},
		{"f", futureRows, 0, now.Add(-70 * time.Minute), hour(1), time.Time{}},
		{"x", deadRows, 3, hour(-2), hour(-2), hour(-2)},
	}
}

// part is a number of rows of one kind, a millisecond apart.
type part struct {
	prefix               string
	rows, status         int
	created, avail, done time.Time
}

// column is a further column that rows are loaded with. Its SQL may name event_id and i,
// the row's number in its part.
type column struct{ name, sql string }

// loadParts fills the table and updates its statistics.
func loadParts(t testing.TB, db *testdb.DB, parts []part, columns ...column) {
	t.Helper()
	loadRows(t, db, parts, columns...)
	analyze(t, db)
}

func analyze(t testing.TB, db *testdb.DB) {
	t.Helper()
	statement := map[testdb.Kind]string{testdb.Postgres: "ANALYZE outbox_event", testdb.MySQL: "ANALYZE TABLE outbox_event", testdb.SQLite: "ANALYZE"}
	_, err := db.ExecContext(t.Context(), statement[db.Kind])
	require.NoError(t, err)
}

// loadRows fills the table with SQL alone.
func loadRows(t testing.TB, db *testdb.DB, parts []part, columns ...column) {
	t.Helper()
	layout := "2006-01-02 15:04:05.000000"
	series, at, id := "", "", ""
	switch db.Kind {
	case testdb.Postgres:
		series = "generate_series(0, %d) AS s (i)"
		at = "TIMESTAMPTZ '%s+00' + i * INTERVAL '1 millisecond'"
		id = "'%s' || lpad(i::text, 8, '0')"
	case testdb.MySQL:
		series = mysqlSeries() + " AS s WHERE i <= %d"
		at = "'%s' + INTERVAL i * 1000 MICROSECOND"
		id = "CONCAT('%s', LPAD(i, 8, '0'))"
	case testdb.SQLite:
		series = "(WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < %d) SELECT i FROM s) AS s"
		at = "%s + i * 1000"
		id = "printf('%s%%08d', i)"
	}
	when := func(base time.Time) string {
		if db.Kind == testdb.SQLite {
			return fmt.Sprintf(at, fmt.Sprint(base.UnixMicro()))
		}
		return fmt.Sprintf(at, base.UTC().Format(layout))
	}
	for _, p := range parts {
		done := "NULL"
		if !p.done.IsZero() {
			done = when(p.done)
		}
		names, values := "", ""
		for _, c := range columns {
			names, values = names+", "+c.name, values+", "+c.sql
		}
		q := "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, status, attempts, available_at, created_at, done_at" + names +
			") SELECT event_id, 'T', 'A', '{}', " + fmt.Sprint(p.status) + ", 0, " + when(p.avail) + ", " + when(p.created) + ", " + done + values +
			" FROM (SELECT i, " + fmt.Sprintf(id, p.prefix) + " AS event_id FROM " + fmt.Sprintf(series, p.rows-1) + ") AS loaded"
		_, err := db.ExecContext(t.Context(), q)
		require.NoError(t, err)
	}
}

// mysqlSeries lists the numbers below 100,000, in SQL that every MySQL knows.
func mysqlSeries() string {
	const digits = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
		" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	return "(SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS i FROM " +
		digits + " AS a, " + digits + " AS b, " + digits + " AS c, " + digits + " AS d, " + digits + " AS e)"
}

// costOf runs a call and counts the rows that its statements examine: on MySQL by
// the session's counters, elsewhere by the plans.
func costOf(t *testing.T, db *testdb.DB, rec *recorded, call func()) int {
	t.Helper()
	switch db.Kind {
	case testdb.MySQL:
		before := handlerReads(t, db)
		call()
		return handlerReads(t, db) - before
	case testdb.Postgres:
		call()
		cost := 0
		for _, s := range rec.statements {
			cost += postgresCost(t, db, s)
		}
		return cost
	default:
		call()
		for _, s := range rec.statements {
			sqlitePlan(t, db, s)
		}
		return 0
	}
}

// handlerReads counts the rows and index entries that the session examined. MariaDB counts
// entries that an index condition refused apart from those that it read; MySQL does not
// count them.
func handlerReads(t *testing.T, db *testdb.DB) int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name LIKE 'Handler_icp%'")
	require.NoError(t, err)
	defer rows.Close()
	total := 0
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		switch {
		case strings.HasSuffix(name, "_icp_match"): // these are read as well
			total -= n
		case !strings.HasSuffix(name, "_rnd_deleted"):
			total += n
		}
	}
	require.NoError(t, rows.Err())
	return total
}

// plan holds the fields of PostgreSQL's EXPLAIN that the test uses.
type plan struct {
	NodeType    string  `json:"Node Type"`
	ActualRows  float64 `json:"Actual Rows"`
	ActualLoops float64 `json:"Actual Loops"`
	Removed     float64 `json:"Rows Removed by Filter"`
	RemovedJoin float64 `json:"Rows Removed by Index Recheck"`
	Plans       []plan  `json:"Plans"`
}

// cost is the most rows that a node examined.
func (p plan) cost() int {
	most := int((p.ActualRows + p.Removed + p.RemovedJoin) * p.ActualLoops)
	for _, child := range p.Plans {
		most = max(most, child.cost())
	}
	return most
}

func postgresCost(t *testing.T, db *testdb.DB, s statement) int {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	var text string
	require.NoError(t, tx.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+s.text, s.args...).Scan(&text))
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.cost()
}

// plannedBy is PostgreSQL's plan of a statement that is not run.
func plannedBy(t *testing.T, db *testdb.DB, s statement) string {
	t.Helper()
	var text string
	require.NoError(t, db.QueryRowContext(t.Context(), "EXPLAIN (FORMAT JSON) "+s.text, s.args...).Scan(&text))
	return text
}

// sqlitePlan refuses plans that scan the table, sort, or build an index. The control table
// is small.
func sqlitePlan(t *testing.T, db *testdb.DB, s statement) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+s.text, s.args...)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		require.NotContains(t, detail, "AUTOMATIC", s.text)
		switch {
		case strings.Contains(s.text, "ORDER BY COALESCE(event_id"): // few rows: those whose time cannot be read
		case !strings.Contains(s.text, "event_id IN (?"): // named rows may be sorted
			// The last term sorts only rows of the same time, and groups are of no more than StatsLimit rows.
			detail := strings.NewReplacer("TEMP B-TREE FOR LAST TERM", "", "TEMP B-TREE FOR GROUP BY", "").Replace(detail)
			require.NotContains(t, detail, "TEMP B-TREE", s.text)
		default:
			require.NotContains(t, detail, "outbox_event USING INDEX idx_outbox_event", s.text)
		}
		if strings.HasPrefix(detail, "SCAN outbox_event") && !strings.HasPrefix(detail, "SCAN outbox_event_control") {
			require.Contains(t, detail, "USING", "%s scans the table", s.text)
		}
	}
	require.NoError(t, rows.Err())
}

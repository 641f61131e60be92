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

// MySQL takes 65,535 parameters in a statement and 16 MB in a packet; a batch
// may be larger than either.
func TestBatchesBeyondTheLimitsOfAStatement(t *testing.T) {
	t.Parallel()
	const many = 33_000 // padded to a power of two: beyond every limit
	for _, target := range testdb.Bulk() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			var opts []testdb.Option
			if target.Kind == testdb.MySQL {
				opts = append(opts, testdb.Param("interpolateParams", "true")) // one packet holds it all
			}
			db, ctx := testdb.Open(t, target, opts...), t.Context()
			store := storeFor(db.Kind)
			require.NoError(t, store.CreateSchema(ctx, db.DB))
			wide := events("wide", 200)
			for i := range wide {
				wide[i].Headers = map[string]string{"trace": strings.Repeat("x", 100_000)}
			}
			insert(t, store, db, wide, "", time.Time{})
			_, err := db.ExecContext(ctx, "DELETE FROM outbox_event")
			require.NoError(t, err)

			db = db.Reopen(t) // prepared statements again
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, store.Insert(ctx, tx, events("many", many), "", time.Time{}))
			require.NoError(t, tx.Commit())
			now := time.Now()
			b, err := store.Claim(ctx, db.DB, outbox.ClaimQuery{Now: now, Limit: many, Lease: "me/1", LeaseDuration: time.Hour})
			require.NoError(t, err)
			require.Equal(t, many, b.Len())
			purged, err := store.Purge(ctx, db.DB, outbox.PurgeQuery{Before: now, ByAge: true, Limit: many})
			require.NoError(t, err)
			require.Equal(t, many, purged.Rows)
		})
	}
}

// pgx prepares statements, and PostgreSQL then keeps a plan: one made when the
// table was small must still work when the table has grown and is not yet
// analysed.
func TestPostgresKeptPlansServeAGrownTable(t *testing.T) {
	t.Parallel()
	db, ctx := testdb.Open(t, testdb.Main()[0]), t.Context()
	store := storeFor(db.Kind)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(ctx, "ALTER TABLE outbox_event SET (autovacuum_enabled = off)")
	require.NoError(t, err)
	insert := func(prefix string, rows int) {
		t.Helper()
		_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at)"+
			" SELECT '%s' || i, 'T', '{}', 0, now() - INTERVAL '1 hour', now() - INTERVAL '1 hour' FROM generate_series(1, %d) AS s (i)", prefix, rows))
		require.NoError(t, err)
	}
	now := time.Now()
	claim := func() {
		t.Helper()
		b, err := store.Claim(ctx, db.DB, outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/1", LeaseDuration: time.Hour})
		require.NoError(t, err)
		left, err := store.Mark(ctx, db.DB, outbox.OutcomeDone, []outbox.Mark{
			{EventID: b.Envelopes[0].EventID, Lease: "me/1"}, {EventID: b.Envelopes[1].EventID, Lease: "me/2"},
		})
		require.NoError(t, err)
		require.Len(t, left, 1)
	}
	purge := func() {
		t.Helper()
		_, err := store.Purge(ctx, db.DB, outbox.PurgeQuery{Before: now, Limit: readBatch})
		require.NoError(t, err)
	}
	insert("small", 10*readBatch)
	_, err = db.ExecContext(ctx, "VACUUM ANALYZE outbox_event")
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "SET plan_cache_mode = force_generic_plan") // always keeps the plan
	require.NoError(t, err)
	for range 10 {
		claim()
		purge()
	}
	insert("grown", 50_000) // not analysed
	rows, err := db.QueryContext(ctx, "SELECT name, statement FROM pg_prepared_statements")
	require.NoError(t, err)
	kept := map[string]string{}
	for rows.Next() {
		var name, text string
		require.NoError(t, rows.Scan(&name, &text))
		switch {
		case strings.Contains(text, "marks.lease"):
			kept[name] = "('{a,b}', '{me/1,me/2}')"
		case strings.HasPrefix(text, "UPDATE"):
			kept[name] = fmt.Sprintf("('me/1', '%s', -3600000000, 3600000000, %d)", now.UTC().Format("2006-01-02 15:04:05+00"), readBatch)
		case strings.HasPrefix(text, "DELETE"):
			kept[name] = fmt.Sprintf("('%s', %d)", now.UTC().Format("2006-01-02 15:04:05+00"), readBatch)
		}
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	require.Len(t, kept, 4, "a claim, a mark, and a purge of delivered and of dead rows")
	for name, args := range kept {
		plan, err := db.QueryContext(ctx, fmt.Sprintf("EXPLAIN EXECUTE %q %s", name, args))
		require.NoError(t, err)
		for plan.Next() {
			var line string
			require.NoError(t, plan.Scan(&line))
			require.NotRegexp(t, `Filter: .*event_id.* = ANY`, line, "compares every row of the table with every id")
		}
		require.NoError(t, plan.Err())
		require.NoError(t, plan.Close())
	}
}

// Statistics taken while every row was leased must not make PostgreSQL read and
// sort the backlog because it expects few free rows.
func TestPostgresClaimsDoNotTrustStatisticsOfLeases(t *testing.T) {
	t.Parallel()
	db, ctx := testdb.Open(t, testdb.Main()[0]), t.Context()
	store := storeFor(db.Kind)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		"ALTER TABLE outbox_event SET (autovacuum_enabled = off)",
		"INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at, locked_by, locked_at)" +
			" SELECT 'e' || i, 'T', '{}', 0, now() - INTERVAL '1 hour', now() - INTERVAL '1 hour', 'gone', now() FROM generate_series(1, 20000) AS s (i)",
		"VACUUM ANALYZE outbox_event",
		"UPDATE outbox_event SET locked_by = NULL, locked_at = NULL",
	} {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err)
	}
	for _, freshOnly := range []bool{true, false} {
		rec := &recorded{DB: db.DB}
		cost := costOf(t, db, rec, func() {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: time.Now(), Limit: readBatch, Lease: "me/1", LeaseDuration: time.Hour, FreshOnly: freshOnly})
			require.NoError(t, err)
			require.Equal(t, readBatch, b.Len())
		})
		require.LessOrEqual(t, cost, readLimit, "fresh only: %v", freshOnly)
	}
}

// marksOfManyLeases are marks of unleased rows in the middle of the backlog: the
// statement, and the read of the rows that it left alone, examine each once.
func marksOfManyLeases() []outbox.Mark {
	marks := make([]outbox.Mark, readBatch)
	for i := range marks {
		marks[i] = outbox.Mark{EventID: fmt.Sprintf("p%08d", 40_000+i), Lease: fmt.Sprintf("me/%d", i)}
	}
	return marks
}

// marksOfManyDueTimes are marks of these rows with due times that the rows do not have.
func marksOfManyDueTimes(now time.Time) []outbox.Mark {
	marks := marksOfManyLeases()
	for i := range marks {
		marks[i].Lease, marks[i].DueAt = "", now.Add(time.Duration(i)*time.Microsecond)
	}
	return marks
}

package sqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
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
			b, err := store.Claim(ctx, db.DB, outbox.ClaimQuery{Now: now, Limit: many, Lease: "me/1", LockTimeout: time.Hour})
			require.NoError(t, err)
			require.Equal(t, many, b.Len())
			n, err := store.Purge(ctx, db.DB, outbox.PurgeQuery{Before: now, ByAge: true, Limit: many})
			require.NoError(t, err)
			require.Equal(t, many, n)
		})
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
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: time.Now(), Limit: readBatch, Lease: "me/1", LockTimeout: time.Hour, FreshOnly: freshOnly})
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

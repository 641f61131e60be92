package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// BenchmarkArchiveMark compares three ways to finish delivered events, in batches of 200: the row
// becomes DONE in place, the row moves into an archive table, the row is deleted. OUTBOX_BENCH_EVENTS is
// the number of events; it defaults to 10,000.
func BenchmarkArchiveMark(b *testing.B) {
	total := benchNumber(b, "OUTBOX_BENCH_EVENTS", 10_000)
	for _, target := range testdb.Main()[:2] {
		for _, way := range []string{"in place", "archive", "delete"} {
			b.Run(target.Name+"/"+way, func(b *testing.B) {
				db := testdb.Open(b, target)
				store := archiveTable(b, db)
				mark := map[string]func(marks []outbox.Mark) error{
					"in place": func(marks []outbox.Mark) error {
						_, err := store.Mark(b.Context(), db.DB, outbox.OutcomeDone, marks)
						return err
					},
					"archive": func(marks []outbox.Mark) error { return toArchive(b.Context(), db, marks) },
					"delete": func(marks []outbox.Mark) error {
						_, err := store.Mark(b.Context(), db.DB, outbox.OutcomeDelete, marks)
						return err
					},
				}[way]
				round := 0
				var took time.Duration
				for b.Loop() {
					round++
					envs := events(fmt.Sprint("m", round), total)
					for chunk := range slices.Chunk(envs, 1000) {
						insert(b, store, db, chunk, "", time.Time{})
					}
					analyze(b, db)
					began := time.Now()
					for chunk := range slices.Chunk(envs, 200) {
						marks := make([]outbox.Mark, len(chunk))
						for i := range chunk {
							marks[i] = outbox.Mark{EventID: chunk[i].EventID}
						}
						require.NoError(b, mark(marks))
					}
					took += time.Since(began)
				}
				b.ReportMetric(float64(total*round)/took.Seconds(), "events/s")
			})
		}
	}
}

// archiveTable creates the tables, with an archive that has the columns and the primary key of the table.
func archiveTable(b *testing.B, db *testdb.DB) *sqlstore.Store {
	b.Helper()
	store := storeFor(db.Kind)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	create := "CREATE TABLE outbox_archive AS SELECT * FROM outbox_event"
	_, err := db.ExecContext(b.Context(), create)
	require.NoError(b, err)
	for _, statement := range []string{"ALTER TABLE outbox_archive ADD PRIMARY KEY (event_id)", "CREATE INDEX idx_outbox_archive_done ON outbox_archive (done_at)"} {
		_, err := db.ExecContext(b.Context(), statement)
		require.NoError(b, err)
	}
	return store
}

// toArchive moves rows into the archive: on PostgreSQL with one statement, on MariaDB, which cannot insert
// what a DELETE returns, with two in a transaction.
func toArchive(ctx context.Context, db *testdb.DB, marks []outbox.Mark) error {
	const columns = "event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, attempts, available_at, created_at, last_error"
	if db.Kind == testdb.Postgres {
		ids := make([]string, len(marks))
		for i := range marks {
			ids[i] = marks[i].EventID
		}
		_, err := db.ExecContext(ctx, "WITH gone AS (DELETE FROM outbox_event WHERE event_id = ANY($1) AND status <> 1 RETURNING *)"+
			" INSERT INTO outbox_archive ("+columns+", status, done_at) SELECT "+columns+", 1, clock_timestamp() FROM gone", ids)
		return err
	}
	list, args := "", make([]any, len(marks))
	for i := range marks {
		list, args[i] = list+",?", marks[i].EventID
	}
	where := " FROM outbox_event WHERE event_id IN (" + list[1:] + ") AND status <> 1"
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO outbox_archive ("+columns+", status, done_at) SELECT "+columns+", 1, UTC_TIMESTAMP(6)"+where+" FOR UPDATE", args...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE"+where, args...); err != nil {
		return err
	}
	return tx.Commit()
}

// BenchmarkArchiveDrain polls and drains 20,000 events from a table without DONE rows, and from one with
// OUTBOX_BENCH_ROWS, which defaults to 1,000,000.
func BenchmarkArchiveDrain(b *testing.B) {
	rows := benchNumber(b, "OUTBOX_BENCH_ROWS", 1_000_000)
	for _, target := range testdb.Main()[:2] {
		for _, kept := range []int{0, rows} {
			b.Run(fmt.Sprintf("%s/%d done rows", target.Name, kept), func(b *testing.B) {
				db := testdb.Open(b, target)
				store := storeFor(db.Kind)
				require.NoError(b, store.CreateSchema(b.Context(), db.DB))
				const atOnce = 100_000
				day := time.Now().UTC().AddDate(0, 0, -1)
				for loaded := 0; loaded < kept; loaded += atOnce {
					at := day.Add(time.Duration(loaded) * time.Millisecond)
					loadRows(b, db, []part{{fmt.Sprintf("d%03d-", loaded/atOnce), min(atOnce, kept-loaded), 1, at, at, at}})
				}
				analyze(b, db)
				if db.Kind == testdb.Postgres { // what autovacuum and the checkpointer do with the rows that were loaded
					for _, statement := range []string{"VACUUM outbox_event", "CHECKPOINT"} {
						_, err := db.ExecContext(b.Context(), statement)
						require.NoError(b, err)
					}
				}
				const idle = 200
				round, took, polling := 0, time.Duration(0), time.Duration(0)
				for b.Loop() {
					round++
					began := time.Now()
					for range idle {
						_, err := store.Poll(b.Context(), db.DB, outbox.PollQuery{Now: time.Now(), Limit: 500, LeaseDuration: time.Minute})
						require.NoError(b, err)
					}
					polling += time.Since(began)
					for chunk := range slices.Chunk(events(fmt.Sprint("n", round), 20_000), 1000) {
						insert(b, store, db, chunk, "", time.Time{})
					}
					began = time.Now()
					drainArchived(b, store, db, round)
					took += time.Since(began)
				}
				b.ReportMetric(float64(polling.Microseconds())/1000/float64(idle*round), "idle-poll-ms")
				b.ReportMetric(float64(20_000*round)/took.Seconds(), "events/s")
			})
		}
	}
}

// drainArchived claims events and marks them DONE, until there are no more.
func drainArchived(b *testing.B, store *sqlstore.Store, db *testdb.DB, round int) {
	b.Helper()
	for n := 0; ; n++ {
		lease := fmt.Sprintf("me/%d-%d", round, n)
		batch, err := store.Claim(b.Context(), db.DB, outbox.ClaimQuery{Now: time.Now().Add(time.Second), Limit: 200, Lease: lease, LeaseDuration: time.Minute, FreshOnly: true})
		require.NoError(b, err)
		if batch.Len() == 0 {
			return
		}
		marks := make([]outbox.Mark, batch.Len())
		for i := range marks {
			marks[i] = outbox.Mark{EventID: batch.Envelopes[i].EventID, Lease: lease}
		}
		_, err = store.Mark(b.Context(), db.DB, outbox.OutcomeDone, marks)
		require.NoError(b, err)
	}
}

// benchNumber is a number from the environment.
func benchNumber(b *testing.B, name string, otherwise int) int {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(b, err)
	return n
}

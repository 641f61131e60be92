package main

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// onEach runs fn on each database, with a pool on the outbox's tables.
func onEach(t *testing.T, fn func(t *testing.T, db *database, pool *sql.DB)) {
	t.Helper()
	for _, kind := range everywhere {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, err := createDatabase(t.Context(), kind)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.drop(context.WithoutCancel(t.Context()))) })
			pool, err := openWithTable(t.Context(), db)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			fn(t, db, pool)
		})
	}
}

func TestPrefilledRowsAreAsTheStoreReadsThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *database, pool *sql.DB) {
		store, err := sqlstore.Detect(t.Context(), pool)
		require.NoError(t, err)
		for i, state := range []rowState{newRows, doneRows, deadRows, futureRows} {
			first := 1000*i + 98 // numbers of different lengths
			began := time.Now()
			require.NoError(t, db.prefill(t.Context(), state, first, 5))
			for n := first; n < first+5; n++ {
				row, err := store.FindEvent(t.Context(), pool, eventID(n))
				require.NoError(t, err)
				require.JSONEq(t, payload(n), row.Payload.String())
				require.Equal(t, n, number(row.Payload.String()))
				require.Equal(t, state.status, row.Status)
				require.WithinRange(t, row.AvailableAt, began.Add(state.due-time.Second), time.Now().Add(state.due+time.Second))
				require.Equal(t, state.status.Terminal(), !row.EndedAt.IsZero())
				require.Equal(t, []string{aggregateType, aggregateID, eventType}, []string{string(row.AggregateType), row.AggregateID, string(row.EventType)})
			}
		}
		pending, err := pendingRows(t.Context(), db.kind, pool)
		require.NoError(t, err)
		require.Equal(t, 5, pending, "neither ended rows nor those of tomorrow")
	})
}

func TestPrefillWritesAsManyRowsAsItIsAskedFor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *database, pool *sql.DB) {
		require.NoError(t, db.prefill(t.Context(), newRows, 7, prefillRows+1))
		var rows int
		var least, most string
		require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*), MIN(event_id), MAX(event_id) FROM outbox_event").Scan(&rows, &least, &most))
		require.Equal(t, []any{prefillRows + 1, eventID(7), eventID(prefillRows + 7)}, []any{rows, least, most})
	})
}

// Statements are counted by the wrapped connections of the drivers.
func TestStatementsAreCounted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *database, pool *sql.DB) {
		s := &bareSystem{db: db, pool: pool}
		require.NoError(t, s.Write(t.Context(), 0, 1))
		db.counting.Store(true)
		require.NoError(t, s.Write(t.Context(), 1, 1))
		require.EqualValues(t, 4, db.statements.Load(), "BEGIN, two INSERTs, COMMIT")
		_, err := s.Pending(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5, db.statements.Load())
	})
}

func TestADatabaseSaysItsVersionAndItsDurability(t *testing.T) {
	t.Parallel()
	for kind, says := range map[testdb.Kind]string{
		testdb.Postgres: `^version \d.*, fsync on, synchronous_commit on$`,
		testdb.MySQL:    `^version \d.*, innodb_flush_log_at_trx_commit 1, sync_binlog \d$`,
		testdb.SQLite:   `^version 3.*, journal_mode wal, synchronous 2$`,
	} {
		text, err := describeDatabase(t.Context(), kind)
		require.NoError(t, err)
		require.Regexp(t, says, text)
	}
}

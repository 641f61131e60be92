package sqlstore_test

import (
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A deferral of OrderedByKey is a retry without an attempt and without an error.
func TestARetryWithoutAnErrorStoresNull(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		envs := events("e", 4)
		insert(t, store, db, envs, "", time.Time{})
		marks := make([]outbox.Mark, len(envs))
		for i := range marks {
			marks[i] = outbox.Mark{EventID: envs[i].EventID, AvailableAt: someTime, Attempts: 3, Error: "it failed"}
		}
		_, err := store.Mark(ctx, db.DB, outbox.OutcomeRetry, marks)
		require.NoError(t, err)
		marks[0].Error, marks[0].Attempts, marks[1].Error, marks[1].Attempts = "", 0, "", 0
		_, err = store.Mark(ctx, db.DB, outbox.OutcomeRetry, marks[:1])
		require.NoError(t, err)
		_, err = store.Mark(ctx, db.DB, outbox.OutcomeRetry, marks[1:])
		require.NoError(t, err)
		var deferred, failed int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE last_error IS NULL AND attempts = 3 AND status = 2").Scan(&deferred))
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE last_error = 'it failed' AND attempts = 3 AND status = 2").Scan(&failed))
		require.Equal(t, [2]int{2, 2}, [2]int{deferred, failed})
	})
}

// Without a timeout SQLite refuses a write at once while another is under way.
func TestSQLiteNeverRefusesAStoresStatementForAnother(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), storeFor(testdb.SQLite)
	db := testdb.Open(t, testdb.Main()[2])
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	envs := events("e", 1000)
	insert(t, store, db, envs, "", time.Time{})
	impatient, err := sql.Open("sqlite", strings.Replace(db.DSN, "busy_timeout(30000)", "busy_timeout(0)", 1))
	require.NoError(t, err)
	defer impatient.Close()
	leased := []outbox.Mark{{EventID: envs[0].EventID, Lease: "n/1"}}
	statements := map[string]func() error{
		"claim": func() error {
			_, err := store.Claim(ctx, impatient, outbox.ClaimQuery{Now: time.Now(), Limit: 5, Lease: "n/1"})
			return err
		},
		"mark": func() error {
			_, err := store.Mark(ctx, impatient, outbox.OutcomeReleased, leased)
			return err
		},
		"split": func() error {
			_, err := store.Split(ctx, impatient, outbox.OutcomeDone, []outbox.Split{{Mark: leased[0]}})
			return err
		},
		"renew": func() error {
			return store.Renew(ctx, impatient, []outbox.Lease{{EventID: envs[1].EventID, Name: "n/1"}})
		},
		"notify": func() error { return store.Notify(ctx, impatient, store.Table()) },
		"purge": func() error {
			_, err := store.Purge(ctx, impatient, outbox.PurgeQuery{Before: someTime, Limit: 5})
			return err
		},
	}
	var all sync.WaitGroup
	for name, statement := range statements {
		all.Go(func() { assert.NoError(t, repeated(200, statement), name) })
	}
	all.Wait()
}

// repeated calls fn until it fails, at most n times.
func repeated(n int, fn func() error) (err error) {
	for i := 0; i < n && err == nil; i++ {
		err = fn()
	}
	return err
}

package txscope_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// open is a session on a transaction of the database, in which an event was
// written; told is what its callbacks were.
func open(t *testing.T, db *testdb.DB, dialect string) (tx *sql.Tx, s *txscope.Session, told *string) {
	t.Helper()
	told = new(string)
	tx, s, err := txscope.BeginSession(t.Context(), txscope.SessionConfig{Source: db.DB, Dialect: dialect},
		func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) })
	require.NoError(t, err)
	_, err = s.Scope().ExecContext(t.Context(), "INSERT INTO events (id) VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, s.Scope().AfterCommit(func(context.Context) { *told = "commit" }))
	require.NoError(t, s.Scope().AfterRollback(func(_ context.Context, cause error) {
		*told = "rollback"
		if errors.Is(cause, outbox.ErrOutcomeUnknown) {
			*told = "unknown"
		}
	}))
	return tx, s, told
}

// PostgreSQL ends the transaction when it refuses such a statement, and answers
// the COMMIT that follows with a warning alone.
func TestStatementsThatEndATransactionOnPostgreSQL(t *testing.T) {
	t.Parallel()
	targets := slices.DeleteFunc(testdb.Drivers(), func(target testdb.Target) bool { return target.Kind != testdb.Postgres })
	testdb.Each(t, targets, func(t *testing.T, db *testdb.DB) {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE events (id INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		require.NoError(t, err)
		xid := fmt.Sprintf("outbox test %p", db)
		t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "ROLLBACK PREPARED '"+xid+"'") })
		for query, want := range map[string]string{
			"COMMIT":                            "rollback",
			"PREPARE TRANSACTION '" + xid + "'": "rollback", // unless the server allows it
		} {
			tx, s, told := open(t, db, txscope.Postgres)
			_, err = tx.ExecContext(t.Context(), "INSERT INTO events (id) VALUES (1)") // a second one
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), query)
			s.Scope().Observe(t.Context(), query, err)
			if err == nil {
				want = "unknown"
			}
			_, writeErr := s.Scope().ExecContext(t.Context(), "INSERT INTO events (id) VALUES (2)")
			require.ErrorIs(t, writeErr, outbox.ErrNoTransaction, "it would commit by itself")
			commitErr := s.Commit(tx.Commit)
			require.Equal(t, want, *told, "%s: %v, then %v", query, err, commitErr)
			var n int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM events").Scan(&n))
			require.Zero(t, n, query)
		}
	})
}

// A transaction whose connection is busy with rows is neither refused nor taken
// for one that is sure to be there.
func TestATransactionWithUnreadRowsIsAskedAgain(t *testing.T) {
	t.Parallel()
	targets := testdb.Main()[:1]
	testdb.Each(t, targets, func(t *testing.T, db *testdb.DB) {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE events (id INT)")
		require.NoError(t, err)
		tx, s, told := open(t, db, txscope.Postgres)
		rows, err := tx.QueryContext(t.Context(), "SELECT id FROM events")
		require.NoError(t, err)
		require.True(t, rows.Next())
		s.Scope().Suspect(txscope.RolledBack, errors.New("it may be gone"))
		_, err = s.Scope().ExecContext(t.Context(), "INSERT INTO events (id) VALUES (2)")
		require.Error(t, err, "the connection is busy")
		require.NotErrorIs(t, err, outbox.ErrNoTransaction)
		require.NoError(t, rows.Close())
		require.NoError(t, rows.Err())

		_, err = s.Scope().ExecContext(t.Context(), "INSERT INTO events (id) VALUES (2)")
		require.NoError(t, err)
		require.NoError(t, s.Commit(tx.Commit))
		require.Equal(t, "commit", *told)
	})
}

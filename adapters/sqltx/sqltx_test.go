package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// countingStore inserts ids into a table of its own. Any other method of it
// panics.
type countingStore struct{ outbox.Store }

func (countingStore) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, _ string) error {
	for i := range envs {
		if _, err := tx.ExecContext(ctx, "INSERT INTO written (id) VALUES (?)", envs[i].EventID); err != nil {
			return err
		}
	}
	return nil
}

func openSQLite(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE written (id TEXT PRIMARY KEY)")
	require.NoError(t, err)
	return db
}

func newWriter(t testing.TB, db *sql.DB, hooks ...outbox.WriterHook) *outbox.Writer {
	t.Helper()
	writer, err := outbox.NewWriter(outbox.WriterConfig{Store: countingStore{}, Source: db, Hooks: hooks})
	require.NoError(t, err)
	return writer
}

func written(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM written").Scan(&n))
	return n
}

func event() outbox.Envelope {
	return outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "1", Payload: outbox.JSON(map[string]int{"n": 1})}
}

func TestRunInTxCommitsAndRollsBack(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	committed := 0
	a := sqltx.New(db, newWriter(t, db, outbox.WriterHook{
		AfterCommit: func(context.Context, []outbox.Envelope) { committed++ },
	}))
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
		id, err := a.Write(ctx, tx, event())
		require.NotEmpty(t, id)
		return err
	}))
	require.Equal(t, 1, written(t, db))
	require.Equal(t, 1, committed)

	failure := errors.New("no")
	require.ErrorIs(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
		_, err := a.Write(ctx, tx.Tx, event())
		require.NoError(t, err)
		return failure
	}), failure)
	require.Equal(t, 1, written(t, db))
	require.Equal(t, 1, committed)
}

func TestMisconfigurationIsReportedByEachCall(t *testing.T) {
	t.Parallel()
	db, other := openSQLite(t), openSQLite(t)
	a := sqltx.New(db, newWriter(t, other))
	_, err := a.BeginTx(t.Context(), nil)
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	_, _, err = a.Begin(t.Context(), nil)
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	err = sqltx.New(nil, nil).RunInTx(t.Context(), nil, nil)
	require.ErrorContains(t, err, "sqltx.New db is nil")
	require.ErrorContains(t, err, "sqltx.New writer is nil")
	_, err = sqltx.New((*sql.DB)(nil), nil).Write(t.Context(), nil, event())
	require.ErrorContains(t, err, "sqltx.New db is nil")
}

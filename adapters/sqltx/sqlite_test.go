package sqltx_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// INSERT OR ROLLBACK ends the transaction when it fails, and so does SQLite when
// the disk is full. A statement after it would commit by itself.
func TestTransactionThatSQLiteEndedTakesNoEvent(t *testing.T) {
	t.Parallel()
	const insert, fails = "INSERT INTO written (id) VALUES ('twice')", "INSERT OR ROLLBACK INTO written (id) VALUES ('twice')"
	for _, target := range testdb.Drivers() {
		if target.Kind != testdb.SQLite {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			f := followed(t, testdb.Open(t, target))
			for name, run := range map[string]func(t *testing.T, tx *sql.Tx) error{
				"statement": execFails(fails),
				"prepared statement": func(t *testing.T, tx *sql.Tx) error {
					stmt, err := tx.PrepareContext(t.Context(), fails)
					require.NoError(t, err)
					_, err = stmt.ExecContext(t.Context())
					return errors.Join(err, stmt.Close())
				},
				"rows": func(t *testing.T, tx *sql.Tx) error {
					var id string
					return tx.QueryRowContext(t.Context(), fails+" RETURNING id").Scan(&id)
				},
			} {
				t.Run(name, func(t *testing.T) {
					f.rec.Reset()
					tx := begin(t, f.db)
					write(t, f.a, tx)
					exec(t, tx, insert)
					require.Error(t, run(t, tx))
					_, err := f.a.Write(t.Context(), tx, event())
					require.ErrorIs(t, err, outbox.ErrNoTransaction)
					require.Error(t, tx.Commit())
					f.rec.Eventually(t, "rollback")
					require.Zero(t, written(t, f.db))

					// A failure that undoes no more than its own statement.
					tx = begin(t, f.db)
					exec(t, tx, insert)
					require.Error(t, execFails(insert)(t, tx))
					write(t, f.a, tx)
					write(t, f.a, tx)
					require.NoError(t, tx.Rollback())
					f.rec.Eventually(t, "rollback", "rollback", "rollback")
				})
			}
		})
	}
}

func execFails(query string) func(t *testing.T, tx *sql.Tx) error {
	return func(t *testing.T, tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), query)
		return err
	}
}

// SQLite ends a transaction because of INSERT OR ROLLBACK: the next statement would commit by itself.
func TestAStatementAfterSQLiteEndedTheTransactionIsNotSent(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE effects (n INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	tx := begin(t, db)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO effects VALUES (1)")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT OR ROLLBACK INTO effects VALUES (1)")
	require.Error(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO effects VALUES (2)")
	require.ErrorContains(t, err, "is not sent")
	_ = tx.Rollback()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&n))
	require.Zero(t, n)
}

package sqltx_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
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
			bare := testdb.Open(t, target)
			createTable(t, bare.DB)
			wrapped := wrappedPool(t, bare)
			for name, test := range map[string]struct {
				db    *sql.DB
				begin func(t *testing.T, a *sqltx.Adapter) sqltx.AnyTx
				run   func(t *testing.T, tx sqltx.AnyTx) error
			}{
				"adapter's own": {bare.DB, beginOwn, execFails(fails)},
				"wrapped":       {wrapped, beginPlain(wrapped), execFails(fails)},
				"wrapped, prepared": {wrapped, beginPlain(wrapped), func(t *testing.T, tx sqltx.AnyTx) error {
					stmt, err := tx.(*sql.Tx).PrepareContext(t.Context(), fails)
					require.NoError(t, err)
					_, err = stmt.ExecContext(t.Context())
					return errors.Join(err, stmt.Close())
				}},
				"wrapped, rows": {wrapped, beginPlain(wrapped), func(t *testing.T, tx sqltx.AnyTx) error {
					var id string
					return tx.(*sql.Tx).QueryRowContext(t.Context(), fails+" RETURNING id").Scan(&id)
				}},
			} {
				t.Run(name, func(t *testing.T) {
					rec := &record{}
					a := sqltx.New(test.db, newWriter(t, test.db, "sqlite", rec.hook()))
					tx := test.begin(t, a)
					write(t, a, tx)
					exec(t, tx, insert)
					require.Error(t, test.run(t, tx))
					_, err := a.Write(t.Context(), tx, event())
					require.ErrorIs(t, err, outbox.ErrNoTransaction)
					require.Error(t, tx.Commit())
					rec.eventually(t, "rollback")
					require.Zero(t, written(t, test.db))

					// A failure that undoes no more than its own statement is none of that.
					tx = test.begin(t, a)
					exec(t, tx, insert)
					require.Error(t, execFails(insert)(t, tx))
					write(t, a, tx)
					write(t, a, tx)
					require.NoError(t, tx.Rollback())
					rec.eventually(t, "rollback", "rollback", "rollback")
				})
			}
		})
	}
}

func beginOwn(t *testing.T, a *sqltx.Adapter) sqltx.AnyTx {
	tx, err := a.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return tx
}

func beginPlain(db *sql.DB) func(t *testing.T, a *sqltx.Adapter) sqltx.AnyTx {
	return func(t *testing.T, _ *sqltx.Adapter) sqltx.AnyTx { return begin(t, db) }
}

func execFails(query string) func(t *testing.T, tx sqltx.AnyTx) error {
	return func(t *testing.T, tx sqltx.AnyTx) error {
		_, err := tx.ExecContext(t.Context(), query)
		return err
	}
}

package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A rollback to a savepoint that nobody sees would leave callbacks of events that
// are not there.
func TestPreparedSavepointStatementsAreRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		createTable(t, db.DB)
		rec := &record{}
		a := sqltx.New(db.DB, newWriter(t, db.DB, string(db.Kind), rec.hook()))
		tx, err := a.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		exec(t, tx, "SAVEPOINT a")
		write(t, a, tx)
		_, err = tx.PrepareContext(t.Context(), "ROLLBACK TO SAVEPOINT a")
		require.ErrorContains(t, err, "execute it with ExecContext")
		stmt, err := db.PrepareContext(t.Context(), "ROLLBACK TO SAVEPOINT a")
		if err == nil { // MySQL does not prepare it
			for _, ours := range []*sql.Stmt{tx.StmtContext(t.Context(), stmt), tx.Stmt(stmt)} {
				_, err = ours.ExecContext(t.Context())
				require.ErrorContains(t, err, "execute it with ExecContext")
			}
			require.NoError(t, stmt.Close())
		} else {
			require.Equal(t, testdb.MySQL, db.Kind)
		}

		ordinary, err := db.PrepareContext(t.Context(), "INSERT INTO written (id) VALUES ('prepared')")
		require.NoError(t, err)
		_, err = tx.Stmt(ordinary).ExecContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, ordinary.Close())
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"commit"}, rec.all())
		require.Equal(t, 2, written(t, db.DB))
	})
}

const (
	onceInsert = "INSERT INTO written (id) VALUES ('twice')"
	endsSQLite = "INSERT OR ROLLBACK INTO written (id) VALUES ('twice')"
)

func eachSQLite(t *testing.T, fn func(t *testing.T, db *sql.DB)) {
	t.Helper()
	for _, target := range testdb.Drivers() {
		if target.Kind == testdb.SQLite {
			t.Run(target.Name, func(t *testing.T) {
				t.Parallel()
				db := testdb.Open(t, target)
				createTable(t, db.DB)
				fn(t, db.DB)
			})
		}
	}
}

// Once SQLite has ended the transaction, a savepoint begins another one.
func TestNoSavepointAfterSQLiteEndedTheTransaction(t *testing.T) {
	t.Parallel()
	eachSQLite(t, func(t *testing.T, db *sql.DB) {
		rec := &record{}
		a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
		for name, savepoint := range map[string]func(ctx context.Context, tx *sqltx.Tx) error{
			"nested": func(ctx context.Context, _ *sqltx.Tx) error {
				return a.RunInTx(ctx, nil, func(context.Context, *sqltx.Tx) error {
					t.Error("there is no transaction to be in")
					return nil
				})
			},
			"by hand": func(_ context.Context, tx *sqltx.Tx) error {
				_, err := tx.Exec("/* by hand */ savepoint a")
				return err
			},
			"as a query": func(_ context.Context, tx *sqltx.Tx) error {
				rows, err := tx.Query("SAVEPOINT a")
				if err == nil {
					err = errors.Join(rows.Err(), rows.Close())
				}
				return err
			},
			"as a row": func(_ context.Context, tx *sqltx.Tx) error {
				return tx.QueryRow("SAVEPOINT a").Scan(new(int))
			},
		} {
			err := a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
				write(t, a, tx)
				exec(t, tx, onceInsert)
				_, err := tx.Exec(endsSQLite)
				require.Error(t, err)
				require.ErrorIs(t, savepoint(ctx, tx), outbox.ErrNoTransaction, name)
				_, err = a.Write(ctx, tx, event())
				require.ErrorIs(t, err, outbox.ErrNoTransaction, name)
				return nil
			})
			require.ErrorContains(t, err, "UNIQUE", name)
		}
		require.Equal(t, []string{"rollback", "rollback", "rollback", "rollback"}, rec.all())
		require.Zero(t, written(t, db))
	})
}

// In a plain transaction nothing is refused to the user. It is known to have ended
// before the savepoint begins another.
func TestSavepointOfAPlainTransactionThatSQLiteEnded(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		if target.Kind != testdb.SQLite {
			continue
		}
		f := newWrappedFixture(t, testdb.Open(t, target))
		tx := begin(t, f.db)
		write(t, f.a, tx)
		exec(t, tx, onceInsert)
		_, err := tx.ExecContext(t.Context(), endsSQLite)
		require.Error(t, err)
		exec(t, tx, "SAVEPOINT a")
		_, err = f.a.Write(t.Context(), tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, tx.Commit(), "UNIQUE")
		f.rec.eventually(t, "rollback")
		require.Zero(t, written(t, f.db))
	}
}

// The error that tells of the end may come where the adapter does not look: with
// the rows of a query, or with the execution of a prepared statement.
func TestSQLiteIsAskedAfterErrorsThatNobodySees(t *testing.T) {
	t.Parallel()
	const returning = endsSQLite + " RETURNING id"
	eachSQLite(t, func(t *testing.T, db *sql.DB) {
		rec := &record{}
		a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
		for name, fail := range map[string]func(tx *sqltx.Tx) error{
			"rows": func(tx *sqltx.Tx) error {
				rows, err := tx.Query(returning)
				if err != nil {
					return err
				}
				for rows.Next() {
				}
				return errors.Join(rows.Err(), rows.Close())
			},
			"row": func(tx *sqltx.Tx) error { return tx.QueryRow(returning).Scan(new(string)) },
			"prepared": func(tx *sqltx.Tx) error {
				stmt, err := tx.Prepare(endsSQLite)
				require.NoError(t, err)
				_, err = stmt.Exec()
				return err
			},
			"prepared before": func(tx *sqltx.Tx) error {
				stmt, err := tx.Tx.Prepare(endsSQLite)
				require.NoError(t, err)
				_, err = tx.Stmt(stmt).Exec()
				return err
			},
		} {
			tx, err := a.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			write(t, a, tx)
			exec(t, tx, onceInsert)
			require.Error(t, fail(tx), name)
			_, err = a.Write(t.Context(), tx, event())
			require.ErrorIs(t, err, outbox.ErrNoTransaction, name)
			require.Error(t, tx.Commit(), name)
		}
		require.Equal(t, []string{"rollback", "rollback", "rollback", "rollback"}, rec.all())
		require.Zero(t, written(t, db))

		// A statement that went well changes nothing.
		require.NoError(t, a.RunInTx(t.Context(), nil, func(_ context.Context, tx *sqltx.Tx) error {
			var id string
			require.NoError(t, tx.QueryRow(onceInsert+" RETURNING id").Scan(&id))
			write(t, a, tx)
			return nil
		}))
		require.Equal(t, 2, written(t, db))
	})
}

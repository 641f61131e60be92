package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

func openMySQL(t testing.TB, opts ...testdb.Option) *testdb.DB {
	t.Helper()
	for _, target := range testdb.Main() {
		if target.Kind == testdb.MySQL {
			return testdb.Open(t, target, opts...)
		}
	}
	t.Fatal("there is no target for MySQL")
	return nil
}

// A deadlock undoes the transaction, and it does not matter on which way the
// error came or that nobody looked at it.
func TestDeadlockIsSeenOnEveryPath(t *testing.T) {
	t.Parallel()
	const update = "UPDATE locked SET n = 2 WHERE id = 1"
	// The first row is large, so that the server sends it before it waits.
	const query = "SELECT REPEAT('x', 100000) FROM locked WHERE id <= 1 ORDER BY id FOR UPDATE"
	rows := func(rows *sql.Rows, err error) error {
		require.NoError(t, err, "it comes with the rows")
		defer func() { _ = rows.Close() }()
		for rows.Next() {
		}
		return rows.Err()
	}
	for name, blocked := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"statement": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, update)
			return err
		},
		"statement with arguments": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE locked SET n = ? WHERE id = ?", 2, 1)
			return err
		},
		"prepared statement": func(ctx context.Context, tx *sql.Tx) error {
			stmt, err := tx.PrepareContext(ctx, update)
			require.NoError(t, err)
			defer func() { _ = stmt.Close() }()
			_, err = stmt.ExecContext(ctx)
			return err
		},
		"rows": func(ctx context.Context, tx *sql.Tx) error {
			return rows(tx.QueryContext(ctx, query))
		},
		"rows of a prepared statement": func(ctx context.Context, tx *sql.Tx) error {
			return rows(tx.QueryContext(ctx, "SELECT REPEAT('x', ?) FROM locked WHERE id <= 1 ORDER BY id FOR UPDATE", 100000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := openMySQL(t)
			f := followed(t, plain)
			exec(t, plain, "CREATE TABLE locked (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)")
			exec(t, plain, "INSERT INTO locked (id, n) VALUES (0, 0), (1, 0), (2, 0)")
			heavy := begin(t, plain.DB) // the lighter one is the victim
			exec(t, heavy, "INSERT INTO locked (id, n) VALUES (101, 0), (102, 0), (103, 0), (104, 0), (105, 0)")
			exec(t, heavy, "UPDATE locked SET n = 1 WHERE id = 1")

			tx := begin(t, f.db)
			write(t, f.a, tx)
			exec(t, tx, "UPDATE locked SET n = 2 WHERE id = 2")
			other := make(chan error, 1)
			go func() {
				_, err := heavy.ExecContext(t.Context(), "UPDATE locked SET n = 1 WHERE id = 2")
				other <- err
			}()
			require.ErrorContains(t, blocked(t.Context(), tx), "1213")
			require.NoError(t, <-other)
			_, err := f.a.Write(t.Context(), tx, event())
			require.ErrorIs(t, err, outbox.ErrNoTransaction, "the row would commit by itself")
			require.ErrorContains(t, tx.Commit(), "1213")
			f.rec.Eventually(t, "rollback")
			require.Zero(t, written(t, f.db))
		})
	}
}

func TestRowsInATransactionAreTheDrivers(t *testing.T) {
	t.Parallel()
	plain := openMySQL(t, testdb.Param("multiStatements", "true"))
	db := followedPool(t, plain)
	const query = "SELECT CAST(1.50 AS DECIMAL(10,2)) AS d, 'text' AS s, CAST(NULL AS SIGNED) AS i; SELECT 7 AS second"
	read := func(tx *sql.Tx) (columns [][]any, second int) {
		rows, err := tx.QueryContext(t.Context(), query)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		for _, column := range types {
			length, hasLength := column.Length()
			precision, scale, isDecimal := column.DecimalSize()
			nullable, known := column.Nullable()
			columns = append(columns, []any{
				column.Name(), column.DatabaseTypeName(), column.ScanType(),
				length, hasLength, precision, scale, isDecimal, nullable, known,
			})
		}
		require.True(t, rows.Next())
		require.False(t, rows.Next())
		require.True(t, rows.NextResultSet())
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(&second))
		require.False(t, rows.NextResultSet())
		require.NoError(t, rows.Err())
		return columns, second
	}
	wantColumns, wantSecond := read(begin(t, plain.DB))
	columns, second := read(begin(t, db))
	require.Equal(t, wantColumns, columns)
	require.Equal(t, wantSecond, second)
}

// disguised is a driver within another wrapper, whose package says nothing.
type disguised struct{ driver.Connector }

func (disguised) Driver() driver.Driver { return nothing{} }

// The store names the database where the driver does not.
func TestDatabaseOfAnUnknownDriverIsLearned(t *testing.T) {
	t.Parallel()
	plain := openMySQL(t)
	createTable(t, plain.DB)
	connector, err := plain.Driver().(driver.DriverContext).OpenConnector(plain.DSN)
	require.NoError(t, err)
	f := newFixture(t, open(t, disguised{connector}), "mysql")
	tx := begin(t, f.db)
	write(t, f.a, tx)
	exec(t, tx, "CREATE TABLE made (id INTEGER)")
	_, err = f.a.Write(t.Context(), tx, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_ = tx.Commit()
	f.rec.Eventually(t, "unknown")
}

// timeouts is a server of MySQL whose UPDATE runs into a lock timeout, and which
// ends the transaction over that or does not: innodb_rollback_on_timeout.
type timeouts struct {
	nothing
	rollback bool
}

func (s timeouts) Connect(context.Context) (driver.Conn, error) { return s, nil }

func (s timeouts) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	switch {
	case query == "UPDATE":
		return nil, &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded; try restarting transaction"}
	case s.rollback && query == "RELEASE SAVEPOINT outbox_alive":
		return nil, &mysql.MySQLError{Number: 1305, Message: "SAVEPOINT outbox_alive does not exist"}
	default:
		return driver.ResultNoRows, nil
	}
}

func TestLockTimeoutMayHaveEndedTheTransaction(t *testing.T) {
	t.Parallel()
	for _, rollback := range []bool{false, true} {
		f := newFixture(t, open(t, timeouts{rollback: rollback}), "mysql")
		a, rec := f.a, f.rec
		tx := begin(t, f.db)
		write(t, a, tx)
		_, err := tx.ExecContext(t.Context(), "UPDATE")
		require.Error(t, err)
		if !rollback {
			write(t, a, tx)
			require.NoError(t, tx.Commit())
			rec.Eventually(t, "commit", "commit")
			continue
		}
		_, err = a.Write(t.Context(), tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, tx.Commit(), "Lock wait timeout")
		rec.Eventually(t, "rollback")
	}
}

// After a deadlock the transaction is gone: a statement would commit by itself.
func TestAStatementAfterADeadlockIsNotSent(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[1:2], func(t *testing.T, db *testdb.DB) {
		adaptertest.Exec(t, db.DB, "CREATE TABLE effects (n INTEGER NOT NULL)")
		prepared, err := db.PrepareContext(t.Context(), "INSERT INTO effects VALUES (1)")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, prepared.Close()) })
		tx := begin(t, db.DB)
		require.Error(t, adaptertest.Deadlock(t, db.DB, func(query string) error {
			_, err := tx.ExecContext(t.Context(), query)
			return err
		}))
		_, err = tx.ExecContext(t.Context(), "INSERT INTO effects VALUES (1)")
		require.ErrorContains(t, err, "is not sent")
		require.True(t, txretry.IsConflict(err), "the cause is in the error")
		_, err = tx.StmtContext(t.Context(), prepared).ExecContext(t.Context())
		require.ErrorContains(t, err, "is not sent")
		require.ErrorContains(t, tx.QueryRowContext(t.Context(), "SELECT n FROM effects").Scan(new(int)), "is not sent")
		require.NoError(t, tx.Rollback())
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&n))
		require.Zero(t, n)
	})
}

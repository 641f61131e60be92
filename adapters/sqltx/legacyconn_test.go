package sqltx_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// oldConn is a connection of a driver as they were before contexts.
type oldConn struct{ log *[]string }

func (oldConn) Close() error { return nil }

func (c oldConn) note(what string) {
	*c.log = append(*c.log, what)
}

func (c oldConn) Begin() (driver.Tx, error) { c.note("begin"); return oldTx{c}, nil }

func (c oldConn) Prepare(query string) (driver.Stmt, error) {
	c.note("prepare " + query)
	return oldStmt{c}, nil
}

type oldTx struct{ c oldConn }

func (tx oldTx) Commit() error   { tx.c.note("commit"); return nil }
func (tx oldTx) Rollback() error { tx.c.note("rollback"); return nil }

type oldStmt struct{ c oldConn }

func (oldStmt) Close() error  { return nil }
func (oldStmt) NumInput() int { return -1 }

func (s oldStmt) Exec(args []driver.Value) (driver.Result, error) {
	s.c.note(fmt.Sprintf("exec %#v", args))
	return driver.RowsAffected(len(args)), nil
}

func (s oldStmt) Query([]driver.Value) (driver.Rows, error) { return oldRows{}, nil }

// ColumnConverter makes every argument a string.
func (oldStmt) ColumnConverter(int) driver.ValueConverter { return driver.String }

type oldRows struct{}

func (oldRows) Columns() []string         { return []string{"n"} }
func (oldRows) Close() error              { return nil }
func (oldRows) Next([]driver.Value) error { return io.EOF }

// executingConn has the methods that run statements at once.
type executingConn struct{ oldConn }

func (c executingConn) Exec(query string, args []driver.Value) (driver.Result, error) {
	c.note("exec " + query)
	return driver.RowsAffected(len(args)), nil
}

func (c executingConn) Query(query string, _ []driver.Value) (driver.Rows, error) {
	c.note("query " + query)
	return oldRows{}, nil
}

// checkingConn has statements that check their arguments.
type checkingConn struct{ oldConn }

func (c checkingConn) Prepare(query string) (driver.Stmt, error) {
	c.note("prepare " + query)
	return checkingStmt{oldStmt{c.oldConn}}, nil
}

type checkingStmt struct{ oldStmt }

func (checkingStmt) CheckNamedValue(value *driver.NamedValue) error {
	value.Value = fmt.Sprintf("checked %v", value.Value)
	return nil
}

func TestDriversWithoutContextsWorkAsBefore(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(log *[]string) driver.Conn{
		"preparing": func(log *[]string) driver.Conn { return oldConn{log} },
		"checking":  func(log *[]string) driver.Conn { return checkingConn{oldConn{log}} },
		"executing": func(log *[]string) driver.Conn { return executingConn{oldConn{log}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// What the driver is asked, with its bare connector and with a wrapped one.
			asked := func(wrap func(driver.Connector) driver.Connector) (log []string) {
				db := sql.OpenDB(wrap(fixedConnector{conn: open(&log)}))
				defer func() { require.NoError(t, db.Close()) }()
				require.NoError(t, db.PingContext(t.Context()))
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				result, err := tx.ExecContext(t.Context(), "INSERT", 1, "two")
				require.NoError(t, err)
				n, err := result.RowsAffected()
				require.NoError(t, err)
				require.Equal(t, int64(2), n)
				rows, err := tx.QueryContext(t.Context(), "SELECT", 1)
				require.NoError(t, err)
				types, err := rows.ColumnTypes()
				require.NoError(t, err)
				length, hasLength := types[0].Length()
				precision, scale, isDecimal := types[0].DecimalSize()
				nullable, known := types[0].Nullable()
				log = append(log, fmt.Sprint(types[0].ScanType(), types[0].DatabaseTypeName(), length, hasLength, precision, scale, isDecimal, nullable, known))
				require.False(t, rows.Next())
				require.False(t, rows.NextResultSet())
				require.NoError(t, rows.Err())
				stmt, err := tx.PrepareContext(t.Context(), "UPDATE")
				require.NoError(t, err)
				_, err = stmt.ExecContext(t.Context(), 1)
				require.NoError(t, err)
				require.NoError(t, tx.Commit())

				_, err = db.ExecContext(t.Context(), "INSERT", sql.Named("a", 1))
				require.ErrorContains(t, err, "amed") // "Named Parameters", "named parameters"
				_, err = db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
				require.ErrorContains(t, err, "isolation level")
				_, err = db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
				require.ErrorContains(t, err, "read-only")
				return log
			}
			plain := asked(func(c driver.Connector) driver.Connector { return c })
			require.Equal(t, plain, asked(sqltx.WrapConnector))
		})
	}
}

func TestPlainTransactionOfADriverThatOnlyPreparesIsFound(t *testing.T) {
	t.Parallel()
	var log []string
	db := openWrapped(t, fixedConnector{conn: oldConn{&log}})
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "postgres", rec.hook()))
	tx := begin(t, db)
	write(t, a, tx)
	require.NoError(t, tx.Commit())
	rec.eventually(t, "commit")
	require.Len(t, log, 6, "%v", log)
	require.Equal(t, "prepare INSERT INTO written (id) VALUES ($1)", log[1], "BEGIN comes before it")
	require.Equal(t, []string{"prepare SELECT 1", "exec []driver.Value{}", "commit"}, log[3:], "such a driver may not tell of a failed transaction")

	_, err := a.Write(t.Context(), tx, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
}

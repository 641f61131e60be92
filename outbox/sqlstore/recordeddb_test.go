package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
)

// recordedDB is a pool that records statements; each changes one row.
func recordedDB(t *testing.T, rec *recorder) *sql.DB {
	t.Helper()
	db := sql.OpenDB(recordedConn{rec})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// recordedConn is a connection with its connector and its transaction.
type recordedConn struct{ *recorder }

func (c recordedConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c recordedConn) Driver() driver.Driver                        { return nil }
func (c recordedConn) Begin() (driver.Tx, error)                    { return c, nil }
func (c recordedConn) Close() error                                 { return nil }

func (c recordedConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("not a statement without arguments")
}

func (c recordedConn) Commit() error {
	_ = c.note("COMMIT", nil)
	return nil
}

func (c recordedConn) Rollback() error {
	_ = c.note("ROLLBACK", nil)
	return nil
}

func (c recordedConn) ExecContext(_ context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	_ = c.note(q, make([]any, len(args)))
	return driver.RowsAffected(1), nil
}

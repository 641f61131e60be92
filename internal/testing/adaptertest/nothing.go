package adaptertest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
)

// Nothing is a pool on a driver that does nothing, so that benchmarks show the
// adapter and not a database.
func Nothing(t testing.TB) *sql.DB {
	t.Helper()
	db := sql.OpenDB(NoDriver{})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// NoDriver is the driver of [Nothing], and the driver's connector and connection.
type NoDriver struct{}

// Connect implements [driver.Connector].
func (NoDriver) Connect(context.Context) (driver.Conn, error) { return NoDriver{}, nil }

// Driver implements [driver.Connector].
func (NoDriver) Driver() driver.Driver { return NoDriver{} }

// Open implements [driver.Driver].
func (NoDriver) Open(string) (driver.Conn, error) { return NoDriver{}, nil }

// Prepare implements [driver.Conn].
func (NoDriver) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }

// PrepareContext implements [driver.ConnPrepareContext].
func (NoDriver) PrepareContext(context.Context, string) (driver.Stmt, error) {
	return nil, driver.ErrSkip
}

// Close implements [driver.Conn].
func (NoDriver) Close() error { return nil }

// Begin implements [driver.Conn].
func (NoDriver) Begin() (driver.Tx, error) { return NoDriver{}, nil }

// BeginTx implements [driver.ConnBeginTx].
func (NoDriver) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return NoDriver{}, nil
}

// Commit implements [driver.Tx].
func (NoDriver) Commit() error { return nil }

// Rollback implements [driver.Tx].
func (NoDriver) Rollback() error { return nil }

// ExecContext implements [driver.ExecerContext].
func (NoDriver) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

// QueryContext implements [driver.QueryerContext].
func (NoDriver) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return nil, driver.ErrSkip
}

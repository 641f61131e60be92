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
	db := sql.OpenDB(nothing{})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type nothing struct{}

func (nothing) Connect(context.Context) (driver.Conn, error) { return nothing{}, nil }
func (nothing) Driver() driver.Driver                        { return nothing{} }
func (nothing) Open(string) (driver.Conn, error)             { return nothing{}, nil }
func (nothing) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (nothing) Close() error                                 { return nil }
func (nothing) Begin() (driver.Tx, error)                    { return nothing{}, nil }
func (nothing) Commit() error                                { return nil }
func (nothing) Rollback() error                              { return nil }

func (nothing) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

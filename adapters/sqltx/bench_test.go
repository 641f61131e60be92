package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// nothing is a driver whose transactions do nothing, so that the benchmarks
// show the wrapper and not a database.
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
	return driver.ResultNoRows, nil
}

// benchmarkCommit begins with the pool or with the adapter.
func benchmarkCommit(b *testing.B, begin func(ctx context.Context) (sqltx.AnyTx, error), statements int) {
	ctx, cancel := context.WithCancel(b.Context()) // as a request's is
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		tx, err := begin(ctx)
		require.NoError(b, err)
		for range statements {
			_, err = tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (1)")
			require.NoError(b, err)
		}
		require.NoError(b, tx.Commit())
	}
}

func BenchmarkCommit(b *testing.B) {
	db := sql.OpenDB(nothing{})
	defer func() { _ = db.Close() }()
	a := sqltx.New(db, newWriter(b, db, ""))
	plain := func(ctx context.Context) (sqltx.AnyTx, error) { return db.BeginTx(ctx, nil) }
	wrapped := func(ctx context.Context) (sqltx.AnyTx, error) { return a.BeginTx(ctx, nil) }
	b.Run("plain", func(b *testing.B) { benchmarkCommit(b, plain, 0) })
	b.Run("sqltx", func(b *testing.B) { benchmarkCommit(b, wrapped, 0) })
	b.Run("plain/10statements", func(b *testing.B) { benchmarkCommit(b, plain, 10) })
	b.Run("sqltx/10statements", func(b *testing.B) { benchmarkCommit(b, wrapped, 10) })
}

func BenchmarkWrite(b *testing.B) {
	db := sql.OpenDB(nothing{})
	defer func() { _ = db.Close() }()
	a := sqltx.New(db, newWriter(b, db, ""))
	b.ReportAllocs()
	for b.Loop() {
		err := a.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
			_, err := a.Write(ctx, tx, event())
			return err
		})
		require.NoError(b, err)
	}
}

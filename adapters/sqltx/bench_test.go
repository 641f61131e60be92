package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
)

// nothing is a driver whose transactions do nothing, so that the benchmarks
// show the wrapper and not a database.
type nothing = adaptertest.NoDriver

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

// BenchmarkWrapConnector is what the driver-level option costs a program that
// has nothing to do with the outbox, and a plain transaction with an event.
func BenchmarkWrapConnector(b *testing.B) {
	plain, wrapped := sql.OpenDB(nothing{}), sql.OpenDB(sqltx.WrapConnector(nothing{}))
	defer func() { require.NoError(b, errors.Join(plain.Close(), wrapped.Close())) }()
	for _, pool := range []struct {
		name string
		db   *sql.DB
	}{{"plain", plain}, {"wrapped", wrapped}} {
		b.Run("statement/"+pool.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := pool.db.ExecContext(b.Context(), "INSERT INTO orders (id) VALUES (1)")
				require.NoError(b, err)
			}
		})
		begin := func(ctx context.Context) (sqltx.AnyTx, error) { return pool.db.BeginTx(ctx, nil) }
		b.Run("commit/"+pool.name, func(b *testing.B) { benchmarkCommit(b, begin, 0) })
		b.Run("commit10statements/"+pool.name, func(b *testing.B) { benchmarkCommit(b, begin, 10) })
	}
	a := sqltx.New(wrapped, newWriter(b, wrapped, ""))
	b.Run("write/wrapped", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tx, err := wrapped.BeginTx(b.Context(), nil)
			require.NoError(b, err)
			_, err = a.Write(b.Context(), tx, event())
			require.NoError(b, err)
			require.NoError(b, tx.Commit())
		}
	})
}

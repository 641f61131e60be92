package outboxbun_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// benchmarked is a bun.DB on a driver that does nothing, plain and followed.
func benchmarked(b *testing.B) (plain, followed *bun.DB, a *outboxbun.Adapter, writer *outbox.Writer) {
	pool := sqltx.OpenDB(adaptertest.NoDriver{})
	b.Cleanup(func() { _ = pool.Close() })
	writer, _ = adaptertest.WriterWithoutTable(b, pool, "sqlite")
	plain = newBun(adaptertest.Nothing(b), testdb.SQLite)
	followed = newBun(pool, testdb.SQLite)
	a, err := outboxbun.New(followed, writer)
	require.NoError(b, err)
	return plain, followed, a, writer
}

// A statement that has nothing to do with the outbox.
func BenchmarkStatement(b *testing.B) {
	plain, followed, _, _ := benchmarked(b)
	type order struct {
		bun.BaseModel `bun:"table:orders"`
		ID            int64 `bun:",pk"`
	}
	for name, db := range map[string]*bun.DB{"plain": plain, "followed": followed} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := db.NewUpdate().Model((*order)(nil)).Set("id = id + 1").Where("id = 1").Exec(b.Context())
				require.NoError(b, err)
			}
		})
		b.Run(name+"/raw", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := db.ExecContext(b.Context(), "UPDATE orders SET id = id + 1 WHERE id = 1")
				require.NoError(b, err)
			}
		})
	}
}

// A transaction that has nothing to do with the outbox, with one statement.
func BenchmarkTransaction(b *testing.B) {
	plain, followed, _, _ := benchmarked(b)
	for name, db := range map[string]*bun.DB{"plain": plain, "followed": followed} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context()) // as a request's is
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					_, err := tx.ExecContext(ctx, "UPDATE orders SET id = id + 1 WHERE id = 1")
					return err
				}))
			}
		})
	}
}

// Write alone: many in one transaction.
func BenchmarkWrite(b *testing.B) {
	_, db, a, writer := benchmarked(b)
	const each = 100 // a transaction keeps its callbacks
	b.Run("bun", func(b *testing.B) {
		b.ReportAllocs()
		var tx bun.Tx
		for n := 0; b.Loop(); n++ {
			if n%each == 0 {
				if n > 0 {
					require.NoError(b, tx.Rollback())
				}
				var err error
				tx, err = db.BeginTx(b.Context(), nil)
				require.NoError(b, err)
			}
			_, err := a.Write(b.Context(), tx, adaptertest.Event())
			require.NoError(b, err)
		}
		require.NoError(b, tx.Rollback())
	})
	plain := adaptertest.Adapter(b, db.DB, writer)
	b.Run("sqltx", func(b *testing.B) {
		b.ReportAllocs()
		var tx *sql.Tx
		for n := 0; b.Loop(); n++ {
			if n%each == 0 {
				if n > 0 {
					require.NoError(b, tx.Rollback())
				}
				var err error
				tx, err = db.DB.BeginTx(b.Context(), nil)
				require.NoError(b, err)
			}
			_, err := plain.Write(b.Context(), tx, adaptertest.Event())
			require.NoError(b, err)
		}
		require.NoError(b, tx.Rollback())
	})
}

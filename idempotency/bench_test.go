package idempotency_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// A transaction that inserts an order: without a key, with a key, and one that was done before.
func BenchmarkRequest(b *testing.B) {
	for _, target := range adaptertest.Main() {
		db := testdb.Open(b, target)
		adaptertest.Exec(b, db.DB, "CREATE TABLE orders (id VARCHAR(64) NOT NULL)")
		s := serve(b, db, 0)
		answer := idempotency.Answer{Status: 201, Headers: map[string][]string{"Content-Type": {"application/json"}}, Body: make([]byte, 200)}
		insert := "INSERT INTO orders (id) VALUES ('1')"
		begin := func(b *testing.B, key string) *idempotency.Attempt {
			b.Helper()
			ctx, attempt, err := s.keys.Begin(b.Context(), s.adapter, nil, idempotency.Request{Key: key})
			require.NoError(b, err)
			if !attempt.Done() {
				tx, _ := s.adapter.TxFrom(ctx)
				_, err = tx.ExecContext(ctx, insert)
				require.NoError(b, err)
				require.NoError(b, attempt.Commit(answer))
			}
			return attempt
		}
		n := 0
		b.Run(target.Name+"/without", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx, tx, err := s.adapter.Begin(b.Context(), nil)
				require.NoError(b, err)
				inner, _ := s.adapter.TxFrom(ctx)
				_, err = inner.ExecContext(ctx, insert)
				require.NoError(b, err)
				require.NoError(b, tx.Commit())
			}
		})
		b.Run(target.Name+"/key", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n++
				begin(b, strconv.Itoa(n))
			}
		})
		begin(b, "replayed")
		b.Run(target.Name+"/replay", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.True(b, begin(b, "replayed").Done())
			}
		})
	}
}

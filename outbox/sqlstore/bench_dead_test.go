package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// BenchmarkDeleteDead deletes 100,000 dead letters so that the deletion can be undone, undoes it, and deletes
// them for good.
func BenchmarkDeleteDead(b *testing.B) {
	for _, target := range testdb.Main() {
		b.Run(target.Name, func(b *testing.B) {
			const letters, insertedAtOnce = 100_000, 1000
			ctx, db := b.Context(), testdb.Open(b, target)
			store := storeFor(db.Kind)
			require.NoError(b, store.CreateSchema(ctx, db.DB))
			for i := range letters / insertedAtOnce {
				envs := events(fmt.Sprintf("%03d-", i), insertedAtOnce)
				insert(b, store, db, envs, "", time.Time{})
				marks := make([]outbox.Mark, len(envs))
				for j := range envs {
					marks[j] = outbox.Mark{EventID: envs[j].EventID, Error: "dial tcp 10.0.0.7:25: connect: connection refused", Attempts: 10}
				}
				_, err := store.Mark(ctx, db.DB, outbox.OutcomeDead, marks)
				require.NoError(b, err)
			}
			analyze(b, db)
			dead, err := outbox.NewDeadLetters(db.DB, store)
			require.NoError(b, err)
			took := func(name string, fn func() int) {
				began := time.Now()
				require.Equal(b, letters, fn())
				b.ReportMetric(time.Since(began).Seconds(), name+"-s")
			}
			for b.Loop() {
				var deletion outbox.Deletion
				took("delete", func() int {
					deletion, err = dead.DeleteAll(ctx, outbox.DeadFilter{}, 0)
					require.NoError(b, err)
					return deletion.Count
				})
				took("restore", func() int {
					n, err := dead.Restore(ctx, deletion.ID)
					require.NoError(b, err)
					return n
				})
				took("final", func() int {
					deletion, err = dead.DeleteAll(ctx, outbox.DeadFilter{}, 0, outbox.Final())
					require.NoError(b, err)
					return deletion.Count
				})
			}
		})
	}
}

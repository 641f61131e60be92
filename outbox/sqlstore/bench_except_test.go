package sqlstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// BenchmarkReadPastPaused reads past 100,000 due rows of a kind that is left out, to one
// row of another: from the start, and from a place behind them.
func BenchmarkReadPastPaused(b *testing.B) {
	for _, target := range testdb.Main() {
		db := testdb.Open(b, target)
		store := storeFor(db.Kind)
		require.NoError(b, store.CreateSchema(b.Context(), db.DB))
		insert(b, store, db, events("paused", 100_000), "", time.Time{})
		other := events("other", 1)
		other[0].EventType = "Other"
		insert(b, store, db, other, "", time.Time{})
		except := []outbox.EventKind{{AggregateType: "Order", EventType: "OrderPlaced"}}
		after := outbox.Cursor{AvailableAt: other[0].AvailableAt.Add(-time.Microsecond)}
		places := map[string]outbox.Cursor{"from the start": {}, "from behind them": after}
		for name, cursor := range places {
			b.Run(target.Name+"/poll "+name, func(b *testing.B) {
				for b.Loop() {
					batch, err := store.Poll(b.Context(), db.DB, outbox.PollQuery{Now: time.Now(), Limit: 500, Except: except, After: cursor, LeaseDuration: time.Minute})
					require.NoError(b, err)
					require.Len(b, batch.Envelopes, 1)
				}
			})
		}
		for name, cursor := range places { // the claims come last: they lease the row
			b.Run(target.Name+"/claim "+name, func(b *testing.B) {
				for b.Loop() {
					batch, err := store.Claim(b.Context(), db.DB, outbox.ClaimQuery{Now: time.Now(), Limit: 500, Except: except, After: cursor, LeaseDuration: time.Minute, Lease: "me/1"})
					require.NoError(b, err)
					require.Len(b, batch.Envelopes, 1)
				}
			})
		}
	}
}

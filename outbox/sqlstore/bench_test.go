package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// nowhere takes statements and does nothing, to see what building them costs.
type nowhere struct{}

func (nowhere) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return driver.RowsAffected(0), nil
}

func events(prefix string, n int) []outbox.Envelope {
	envs := make([]outbox.Envelope, n)
	now := time.Now().UTC().Truncate(time.Microsecond)
	for i := range envs {
		envs[i] = outbox.Envelope{
			EventID: fmt.Sprintf("%s-%08d", prefix, i), EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1",
			Payload: outbox.RawJSON(`{"order":"` + strings.Repeat("x", 180) + `"}`), OccurredAt: now, AvailableAt: now,
		}
	}
	return envs
}

func BenchmarkInsertStatement(b *testing.B) {
	for _, kind := range []testdb.Kind{testdb.Postgres, testdb.MySQL, testdb.SQLite} {
		b.Run(string(kind), func(b *testing.B) {
			store, envs := storeFor(kind), events("e", 1)
			b.ReportAllocs()
			for b.Loop() {
				if err := store.Insert(b.Context(), nowhere{}, envs, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClaimAndMark is 200 events through a claim and a mark: through one of
// fresh rows, which most claims are, and through one that takes over, too.
func BenchmarkClaimAndMark(b *testing.B) {
	for _, target := range testdb.Main() {
		b.Run(target.Name+"/fresh", func(b *testing.B) { benchmarkClaim(b, target, true) })
		b.Run(target.Name+"/takeovers too", func(b *testing.B) { benchmarkClaim(b, target, false) })
	}
}

func benchmarkClaim(b *testing.B, target testdb.Target, freshOnly bool) {
	const batch = 200
	db := testdb.Open(b, target)
	store := storeFor(db.Kind)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	round := 0
	b.ReportAllocs()
	for b.Loop() {
		if round%50 == 0 {
			b.StopTimer()
			require.NoError(b, store.Insert(b.Context(), db.DB, events(fmt.Sprint("r", round), 50*batch), ""))
			b.StartTimer()
		}
		round++
		claimed, err := store.Claim(b.Context(), db.DB, outbox.ClaimQuery{Now: time.Now(), Limit: batch, Owner: "me", LockTimeout: time.Minute, FreshOnly: freshOnly})
		require.NoError(b, err)
		marks := make([]outbox.Mark, batch)
		for i := range marks {
			marks[i].EventID = claimed.Envelopes[i].EventID
		}
		n, err := store.Mark(b.Context(), db.DB, outbox.OutcomeDone, "me", marks)
		require.NoError(b, err)
		require.Equal(b, batch, n)
	}
}

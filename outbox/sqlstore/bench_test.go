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

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
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
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/events=%d", kind, n), func(b *testing.B) {
				store, envs := storeFor(kind), events("e", n)
				b.ReportAllocs()
				for b.Loop() {
					if err := store.Insert(b.Context(), nowhere{}, envs, "", time.Time{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
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
	store := detected(b, db)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	round := 0
	b.ReportAllocs()
	for b.Loop() {
		if round%50 == 0 {
			b.StopTimer()
			insert(b, store, db, events(fmt.Sprint("r", round), 50*batch), "", time.Time{})
			b.StartTimer()
		}
		round++
		lease := fmt.Sprintf("me/%d", round)
		claimed, err := store.Claim(b.Context(), db.DB, outbox.ClaimQuery{Now: time.Now(), Limit: batch, Lease: lease, LeaseDuration: time.Minute, FreshOnly: freshOnly})
		require.NoError(b, err)
		marks := make([]outbox.Mark, batch)
		for i := range marks {
			marks[i] = outbox.Mark{EventID: claimed.Envelopes[i].EventID, Lease: lease}
		}
		left, err := store.Mark(b.Context(), db.DB, outbox.OutcomeDone, marks)
		require.NoError(b, err)
		require.Nil(b, left)
	}
}

// BenchmarkMark marks 300 events DONE: without leases as in SingleNode, under one
// lease as after a claim, and each under its own as on the hot path.
func BenchmarkMark(b *testing.B) {
	for _, target := range testdb.Main() {
		for name, leases := range map[string]int{"no lease": 0, "one lease": 1, "300 leases": markBatch} {
			b.Run(target.Name+"/"+name, func(b *testing.B) { benchmarkMark(b, target, leases) })
		}
	}
}

const markBatch = 300

func benchmarkMark(b *testing.B, target testdb.Target, leases int) {
	const rounds = 40
	db := testdb.Open(b, target)
	store := detected(b, db)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	var marks []outbox.Mark
	round := 0
	for b.Loop() {
		if len(marks) == 0 {
			b.StopTimer()
			envs := events(fmt.Sprint("r", round), rounds*markBatch)
			tx, err := db.BeginTx(b.Context(), nil)
			require.NoError(b, err)
			for i := range envs {
				lease := ""
				if leases > 0 {
					lease = fmt.Sprintf("me/%d", round*markBatch+i%leases)
				}
				marks = append(marks, outbox.Mark{EventID: envs[i].EventID, Lease: lease})
				if i%100 == 99 || leases > 1 {
					n := i
					if leases <= 1 {
						n = i - 99
					}
					require.NoError(b, store.Insert(b.Context(), tx, envs[n:i+1], lease, time.Now().Add(time.Hour)))
				}
			}
			require.NoError(b, tx.Commit())
			round++
			b.StartTimer()
		}
		left, err := store.Mark(b.Context(), db.DB, outbox.OutcomeDone, marks[:markBatch])
		require.NoError(b, err)
		require.Nil(b, left)
		marks = marks[markBatch:]
	}
}

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
// lease as after a claim, each under its own as on the hot path, and with DueAt as in a range.
func BenchmarkMark(b *testing.B) {
	for _, target := range testdb.Main() {
		for name, leases := range map[string]int{"no lease": 0, "one lease": 1, "300 leases": markBatch} {
			b.Run(target.Name+"/"+name, func(b *testing.B) { benchmarkMark(b, target, leases, 0) })
		}
		b.Run(target.Name+"/300 due times", func(b *testing.B) { benchmarkMark(b, target, 0, time.Microsecond) })
	}
}

const markBatch = 300

// benchmarkMark marks events under so many leases or, if apart is not zero, with due times so far
// apart.
func benchmarkMark(b *testing.B, target testdb.Target, leases int, apart time.Duration) {
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
				var due time.Time
				if apart > 0 {
					due = envs[i].AvailableAt.Add(time.Duration(i) * apart)
					envs[i].AvailableAt = due
				}
				lease := ""
				if leases > 0 {
					lease = fmt.Sprintf("me/%d", round*markBatch+i%leases)
				}
				marks = append(marks, outbox.Mark{EventID: envs[i].EventID, Lease: lease, DueAt: due})
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

// BenchmarkReach looks at 500 of 20,000 due rows, and reads these rows as a range is read.
func BenchmarkReach(b *testing.B) {
	for _, target := range testdb.Main() {
		db := testdb.Open(b, target)
		store := detected(b, db)
		require.NoError(b, store.CreateSchema(b.Context(), db.DB))
		insert(b, store, db, events("e", 20_000), "", time.Time{})
		analyze(b, db)
		q := outbox.PollQuery{Now: time.Now().Add(time.Minute), Limit: 500, LeaseDuration: time.Minute, FreshOnly: true}
		var reach outbox.Reach
		b.Run(target.Name+"/reach", func(b *testing.B) {
			for b.Loop() {
				var err error
				reach, err = store.Reach(b.Context(), db.DB, q)
				require.NoError(b, err)
				require.Equal(b, q.Limit, reach.Fresh)
			}
		})
		b.Run(target.Name+"/poll", func(b *testing.B) {
			q.Upto = reach.End
			for b.Loop() {
				batch, err := store.Poll(b.Context(), db.DB, q)
				require.NoError(b, err)
				require.Len(b, batch.Envelopes, q.Limit)
			}
		})
		b.Run(target.Name+"/ranges", func(b *testing.B) {
			for b.Loop() {
				ranges, err := store.Ranges(b.Context(), db.DB)
				require.NoError(b, err)
				next := outbox.Ranges{Version: fmt.Sprint("node/", ranges.Now.UnixMicro()), Ranges: make([]outbox.Range, 20)}
				for i := range next.Ranges {
					next.Ranges[i] = outbox.Range{Name: fmt.Sprint(next.Version, i), After: reach.End, Upto: reach.End, Until: ranges.Now}
				}
				set, err := store.SetRanges(b.Context(), db.DB, ranges.Version, ranges.Now.Add(time.Hour), next)
				require.NoError(b, err)
				require.True(b, set)
			}
		})
	}
}

package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// benchKeys opens a database with an outbox table that has the key index.
func benchKeys(b *testing.B, target testdb.Target) (*testdb.DB, *sqlstore.Store) {
	b.Helper()
	db := testdb.Open(b, target)
	store, err := sqlstore.Detect(b.Context(), db.DB, sqlstore.WithKeyIndex())
	require.NoError(b, err)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	return db, store
}

// BenchmarkDrainByKey is a backlog of 100,000 rows of some keys delivered to a
// listener that does nothing, by key and without order.
func BenchmarkDrainByKey(b *testing.B) {
	for _, target := range adaptertest.Main() {
		for _, keys := range []int{100_000, 1000, 10} {
			for name, mode := range map[string]outbox.Mode{"by-key": outbox.OrderedByKey{}, "multi": outbox.MultiNode{}} {
				b.Run(fmt.Sprintf("%s/keys=%d/%s", target.Name, keys, name), func(b *testing.B) { drainKeys(b, target, keys, mode) })
			}
		}
	}
}

func drainKeys(b *testing.B, target testdb.Target, keys int, mode outbox.Mode) {
	db, store := benchKeys(b, target)
	backlog := 100_000
	if testing.Short() {
		backlog = 10_000
	}
	for b.Loop() {
		b.StopTimer()
		fillKeys(b, db, store, backlog, keys)
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode, Logger: quiet})
		require.NoError(b, err)
		var heard atomic.Int64
		all := make(chan struct{})
		require.NoError(b, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
			if heard.Add(1) == int64(backlog) {
				close(all)
			}
			return nil
		}))))
		b.StartTimer()
		require.NoError(b, ob.Start(b.Context()))
		<-all
		require.NoError(b, ob.Close(context.Background()))
	}
	b.ReportMetric(float64(backlog)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// fillKeys writes events of the keys in turn.
func fillKeys(b *testing.B, db *testdb.DB, store *sqlstore.Store, n, keys int) {
	b.Helper()
	w, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(b, err)
	for i := 0; i < n; {
		envs := make([]outbox.Envelope, min(5000, n-i))
		for j := range envs {
			envs[j] = outbox.Envelope{EventType: "Said", AggregateID: fmt.Sprint("key-", i%keys), Payload: payload200}
			i++
		}
		tx, err := db.BeginTx(b.Context(), nil)
		require.NoError(b, err)
		_, err = w.Writer().WriteUnmanaged(b.Context(), tx, envs)
		require.NoError(b, err)
		require.NoError(b, tx.Commit())
	}
}

// BenchmarkCommitByKey is one event at a time, of a key that is idle, from the commit
// to its listener. It reports the median.
func BenchmarkCommitByKey(b *testing.B) {
	for _, target := range adaptertest.Main() {
		b.Run(target.Name, func(b *testing.B) {
			db, store := benchKeys(b, target)
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.OrderedByKey{}, Logger: quiet})
			require.NoError(b, err)
			heard := make(chan time.Time)
			require.NoError(b, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
				heard <- time.Now()
				return nil
			}))))
			require.NoError(b, ob.Start(b.Context()))
			a := adaptertest.Adapter(b, db.DB, ob.Writer())
			var took []time.Duration
			for b.Loop() {
				err := a.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := a.Write(ctx, tx, outbox.Envelope{EventType: "Said", AggregateID: fmt.Sprint("key-", len(took)%100), Payload: payload200})
					return err
				})
				require.NoError(b, err)
				committed := time.Now()
				took = append(took, max((<-heard).Sub(committed), 0))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
			require.NoError(b, ob.Close(context.Background()))
		})
	}
}

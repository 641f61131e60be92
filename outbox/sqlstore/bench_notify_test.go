package sqlstore_test

import (
	"context"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// BenchmarkIdleProcess is the processor time that a process takes which waits for events
// of others, for a second each, without the server's.
func BenchmarkIdleProcess(b *testing.B) {
	for _, target := range testdb.Main() {
		for name, interval := range map[string]time.Duration{"notifier": 5 * time.Second, "interval 20 ms": 20 * time.Millisecond, "interval 200 ms": 200 * time.Millisecond} {
			b.Run(target.Name+"/"+name, func(b *testing.B) {
				db := testdb.Open(b, target)
				store := storeFor(db.Kind)
				require.NoError(b, store.CreateSchema(b.Context(), db.DB))
				cfg := outbox.Config{
					DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler),
					Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: interval}},
				}
				if name == "notifier" {
					cfg.Notifier = store
				}
				ob, err := outbox.New(cfg)
				require.NoError(b, err)
				require.NoError(b, ob.Start(b.Context()))
				time.Sleep(time.Second) // what starting causes is over
				began := processorTime(b)
				for b.Loop() {
					time.Sleep(time.Second)
				}
				b.ReportMetric((processorTime(b)-began).Seconds()*1e3/float64(b.N), "cpu-ms/s")
				require.NoError(b, ob.Close(context.Background()))
			})
		}
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

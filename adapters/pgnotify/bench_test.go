package pgnotify_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const writers = 16

// process is an outbox with a pool of its own.
type process struct {
	*outbox.Outbox
	tx *sqltx.Adapter
}

// batches counts what pollers read.
type batches struct {
	outbox.NopMetrics
	n, empty *atomic.Int64
}

func (m batches) BatchRead(size int) {
	m.n.Add(1)
	if size == 0 {
		m.empty.Add(1)
	}
}

func startProcess(b *testing.B, db *testdb.DB, mode outbox.Mode, notifies bool, metrics outbox.Metrics, fn func(id string)) *process {
	b.Helper()
	pool := db.Reopen(b)
	pool.SetMaxOpenConns(writers + 2)
	pool.SetMaxIdleConns(writers + 2)
	cfg := outbox.Config{DB: pool.DB, Store: sqlstore.Postgres(), Mode: mode, Metrics: metrics, Logger: slog.New(slog.DiscardHandler)}
	if notifies {
		notifier, err := pgnotify.New(pool.DB)
		require.NoError(b, err)
		cfg.Notifier = notifier
	}
	ob, err := outbox.New(cfg)
	require.NoError(b, err)
	require.NoError(b, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		fn(env.EventID)
		return nil
	}))))
	require.NoError(b, ob.Start(b.Context()))
	b.Cleanup(func() { _ = ob.Close(context.Background()) })
	return &process{ob, adaptertest.Adapter(b, pool.DB, ob.Writer())}
}

func (p *process) write(b *testing.B) (id string) {
	err := p.tx.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = p.tx.Write(ctx, tx, adaptertest.Event())
		return err
	})
	if err != nil {
		b.Error(err)
	}
	return id
}

func newTable(b *testing.B) *testdb.DB {
	db := testdb.Open(b, postgres)
	require.NoError(b, sqlstore.Postgres().CreateSchema(b.Context(), db.DB))
	return db
}

// BenchmarkAcross is the time from the return of a commit in one process to the call
// of the listener in another, one event at a time.
func BenchmarkAcross(b *testing.B) {
	for name, nodes := range map[string]int{"1 node": 1, "4 nodes": 4} {
		b.Run(name, func(b *testing.B) {
			db, heard, metrics := newTable(b), make(chan time.Time, 1), batches{n: new(atomic.Int64), empty: new(atomic.Int64)}
			for range nodes {
				startProcess(b, db, outbox.MultiNode{}, true, metrics, func(string) { heard <- time.Now() })
			}
			writer := startProcess(b, db, outbox.WriterOnly{}, true, nil, nil)
			writer.write(b)
			<-heard
			time.Sleep(100 * time.Millisecond)
			polls, empty, cpu := metrics.n.Load(), metrics.empty.Load(), cpuTime()
			var took []time.Duration
			for b.Loop() {
				writer.write(b)
				committed := time.Now()
				took = append(took, (<-heard).Sub(committed))
				time.Sleep(25 * time.Millisecond) // the next notification goes out at once
			}
			n := float64(len(took))
			reportLatency(b, took)
			b.ReportMetric(float64(metrics.n.Load()-polls)/n, "claims/event")
			b.ReportMetric(float64(metrics.empty.Load()-empty)/n, "empty/event")
			b.ReportMetric((cpuTime()-cpu).Seconds()*1e6/n, "cpu-us/event")
		})
	}
}

// BenchmarkAcrossBusy is the same with 16 writers that pause for 10 ms after each
// event.
func BenchmarkAcrossBusy(b *testing.B) {
	var mu sync.Mutex
	committed, heard := map[string]time.Time{}, map[string]time.Time{}
	db := newTable(b)
	startProcess(b, db, outbox.MultiNode{}, true, nil, func(id string) {
		mu.Lock()
		defer mu.Unlock()
		heard[id] = time.Now()
	})
	writer := startProcess(b, db, outbox.WriterOnly{}, true, nil, nil)
	time.Sleep(100 * time.Millisecond)
	var group sync.WaitGroup
	var n atomic.Int64
	for range writers {
		group.Go(func() {
			for n.Add(1) <= int64(b.N) {
				id, now := writer.write(b), time.Now()
				mu.Lock()
				committed[id] = now
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	group.Wait()
	require.Eventually(b, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(heard) == len(committed)
	}, time.Minute, time.Millisecond)
	var took []time.Duration
	for id, at := range committed {
		took = append(took, heard[id].Sub(at))
	}
	reportLatency(b, took)
}

func reportLatency(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
}

// BenchmarkWriting is the rate of 16 writers with notifications, divided by that
// without them, in turns of a quarter of a second: the median of the pairs. The
// nodes deliver meanwhile; those that get no notifications poll every 40 ms, which
// gives the latency of a notification under load.
func BenchmarkWriting(b *testing.B) {
	for _, nodes := range []int{0, 1, 4} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			plain, notifying := newSide(b, nodes, false), newSide(b, nodes, true)
			var ratios, cpu []float64
			for b.Loop() {
				first, second := plain, notifying
				if len(ratios)%2 == 1 {
					first, second = notifying, plain
				}
				first.turn(b)
				second.turn(b)
				ratios, cpu = append(ratios, notifying.rate/plain.rate), append(cpu, notifying.cpu/plain.cpu)
			}
			slices.Sort(ratios)
			slices.Sort(cpu)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(ratios[len(ratios)/4], "ratio-q1")
			b.ReportMetric(ratios[len(ratios)*3/4], "ratio-q3")
			b.ReportMetric(cpu[len(cpu)/2], "cpu-ratio")
			b.ReportMetric(notifying.rate, "tx/s")
		})
	}
}

// side is a writing process and those that deliver what it writes.
type side struct {
	*process
	nodes     int
	written   int64
	delivered atomic.Int64
	// of the last turn
	rate, cpu float64
}

func newSide(b *testing.B, nodes int, notifies bool) *side {
	db, s := newTable(b), &side{nodes: nodes}
	mode := outbox.MultiNode{}
	if !notifies {
		mode.Poll.Interval = 40 * time.Millisecond
	}
	for range nodes {
		startProcess(b, db, mode, notifies, nil, func(string) { s.delivered.Add(1) })
	}
	s.process = startProcess(b, db, outbox.WriterOnly{}, notifies, nil, nil)
	return s
}

// turn writes for a while, and waits until all is delivered.
func (s *side) turn(b *testing.B) {
	var n atomic.Int64
	var group sync.WaitGroup
	began, cpu := time.Now(), cpuTime()
	for range writers {
		group.Go(func() {
			for time.Since(began) < 250*time.Millisecond {
				s.write(b)
				n.Add(1)
			}
		})
	}
	group.Wait()
	s.rate = float64(n.Load()) / time.Since(began).Seconds()
	s.written += n.Load()
	for s.nodes > 0 && s.delivered.Load() < s.written {
		time.Sleep(time.Millisecond)
	}
	s.cpu = (cpuTime() - cpu).Seconds() / float64(n.Load())
}

// cpuTime is what this process has used in user mode.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano())
}

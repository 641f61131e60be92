package cdc_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

const backlog = 100_000

// counter is a broker that acknowledges at once.
type counter struct {
	n    atomic.Int64
	came chan struct{} // when set
}

func (c *counter) Publish(_ context.Context, messages []relay.Message) []error {
	c.n.Add(int64(len(messages)))
	if c.came != nil {
		c.came <- struct{}{}
	}
	return nil
}
func (c *counter) Ping(context.Context) error  { return nil }
func (c *counter) Close(context.Context) error { return nil }

// newBench makes a shop whose broker is c.
func newBench(b *testing.B, c *counter) *shop {
	b.Helper()
	s := bareShop(b, sqlstore.Postgres())
	s.createTable()
	var err error
	s.relay, err = relay.New(relay.Config{Publisher: c, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())}})
	require.NoError(b, err)
	return s
}

// poll runs an outbox on the table.
func (s *shop) poll(b *testing.B) (stop func()) {
	b.Helper()
	db, err := sql.Open("pgx", s.dsn)
	require.NoError(b, err)
	db.SetMaxOpenConns(16)
	ob, err := outbox.New(outbox.Config{DB: db, Store: s.store, Mode: outbox.SingleNode{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	require.NoError(b, ob.Register(s.relay.Bindings()...))
	require.NoError(b, ob.Start(b.Context()))
	return func() { _ = ob.Close(context.Background()); _ = db.Close() }
}

// BenchmarkDrain is a backlog of 100,000 events that another process wrote, ten in each transaction, read from
// the log and, beside it, from the table by the poller.
func BenchmarkDrain(b *testing.B) {
	for name, start := range map[string]func(b *testing.B, s *shop) (stop func()){
		"log": func(_ *testing.B, s *shop) func() {
			stop := s.read(func(cfg *cdc.Config, _ *cdc.Postgres) { cfg.Logger = slog.New(slog.DiscardHandler) })
			return func() { _ = stop() }
		},
		"poller": func(b *testing.B, s *shop) func() { return s.poll(b) },
	} {
		b.Run(name, func(b *testing.B) {
			var rates []float64
			for b.Loop() {
				b.StopTimer()
				c := &counter{}
				s := newBench(b, c)
				require.NoError(b, s.reader(nil).Setup(b.Context()))
				s.exec("DO $$ BEGIN FOR i IN 1..10000 LOOP INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, headers, status, available_at, created_at) " +
					"SELECT i || '-' || n, 'Placed', 'Order', (i * 10 + n)::text, '{\"order\": 1234567, \"lines\": [1, 2, 3]}', '{\"traceparent\": \"00-1\"}', 0, now(), now() FROM generate_series(1, 10) n; COMMIT; END LOOP; END $$")
				began := time.Now()
				b.StartTimer()
				stop := start(b, s)
				for c.n.Load() < backlog {
					time.Sleep(time.Millisecond)
				}
				b.StopTimer()
				rates = append(rates, backlog/time.Since(began).Seconds())
				stop()
				b.StartTimer()
			}
			slices.Sort(rates)
			b.ReportMetric(rates[len(rates)/2], "events/s")
		})
	}
}

// BenchmarkLatency is the time from the return of a commit in another process to the broker, one event at a
// time, from the log.
func BenchmarkLatency(b *testing.B) {
	c := &counter{came: make(chan struct{}, 1)}
	s := newBench(b, c)
	require.NoError(b, s.reader(nil).Setup(b.Context()))
	s.read(nil)
	s.ready()
	var took []time.Duration
	for b.Loop() {
		s.commit("a", newID())
		began := time.Now()
		<-c.came
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

var benchID atomic.Int64

// newID is an id that no other event has.
func newID() string {
	return "bench-" + time.Now().Format("150405.000000000") + "-" + string(rune('a'+benchID.Add(1)%26))
}

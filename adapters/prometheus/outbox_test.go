package outboxprom_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// shop is a running outbox on SQLite with its registry.
type shop struct {
	*outbox.Outbox
	t        *testing.T
	db       *testdb.DB
	adapter  *sqltx.Adapter
	registry *prometheus.Registry
}

func sqlite(t *testing.T) testdb.Target {
	t.Helper()
	for _, target := range adaptertest.Main() {
		if target.Kind == testdb.SQLite {
			return target
		}
	}
	require.Fail(t, "testdb knows no SQLite")
	return testdb.Target{}
}

func openShop(t *testing.T, mode outbox.Mode, opts ...outboxprom.Option) *shop {
	t.Helper()
	db := testdb.Open(t, sqlite(t))
	require.NoError(t, sqlstore.SQLite().CreateSchema(t.Context(), db.DB))
	s := &shop{t: t, db: db, registry: prometheus.NewPedanticRegistry()}
	metrics, err := outboxprom.New(s.registry, opts...)
	require.NoError(t, err)
	s.Outbox, err = outbox.New(outbox.Config{
		DB: db.DB, Store: sqlstore.SQLite(), Mode: mode, Metrics: metrics, Logger: slog.New(slog.DiscardHandler),
		RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	require.NoError(t, metrics.WatchTable(s.Outbox))
	s.adapter = adaptertest.Adapter(s.t, db.DB, s.Writer())
	return s
}

func (s *shop) write(envs ...outbox.Envelope) {
	s.t.Helper()
	require.NoError(s.t, s.adapter.RunInTx(s.t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.adapter.WriteAll(ctx, tx, envs)
		return err
	}))
}

func event(eventType outbox.EventType) outbox.Envelope {
	return outbox.Envelope{EventType: eventType, AggregateType: "Order", Payload: outbox.RawJSON(`{}`)}
}

func listen(s *shop, eventType outbox.EventType, fn func(env outbox.Envelope) error) {
	s.t.Helper()
	require.NoError(s.t, s.Register(outbox.On("Order", eventType, outbox.ListenerFunc(
		func(_ context.Context, env outbox.Envelope) error { return fn(env) }))))
}

func TestScrapeOfARunningOutboxTellsWhatHappened(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.SingleNode{})
	listen(s, "Placed", func(outbox.Envelope) error { return nil })
	listen(s, "Flaky", func(env outbox.Envelope) error {
		if env.Attempts == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	listen(s, "Hopeless", func(outbox.Envelope) error { return outbox.Dead(errors.New("no")) })
	listen(s, "Later", func(outbox.Envelope) error { return outbox.Defer(time.Hour) })
	require.NoError(t, s.Start(t.Context()))

	delayed := event("Placed")
	delayed.DeliverAfter = time.Hour
	s.write(event("Placed"), event("Placed"), event("Placed"), event("Flaky"), event("Hopeless"), event("Later"), delayed)
	eventually(t, func() bool {
		stats, err := s.Stats(t.Context())
		return err == nil && stats.Pending == 2 && stats.Dead == 1 && stats.Due == 0
	}, "the events never got where they belong")

	var f families
	eventually(t, func() bool { // outcomes are counted when they are stored
		f = scrape(t, s.registry)
		return f.value(t, "outbox_dispatch_success_total")+f.value(t, "outbox_dispatch_failure_total")+
			f.value(t, "outbox_dispatch_dead_total")+f.value(t, "outbox_dispatch_deferred_total") >= 7
	}, "an outcome was not reported")
	for name, want := range map[string]float64{
		"outbox_enqueue_hot_total":                 6,
		"outbox_enqueue_hot_dropped_total":         0,
		"outbox_enqueue_hot_skipped_delayed_total": 1,
		"outbox_enqueue_cold_total":                1,
		"outbox_dispatch_success_total":            4,
		"outbox_dispatch_failure_total":            1,
		"outbox_dispatch_dead_total":               1,
		"outbox_dispatch_deferred_total":           1,
		"outbox_lease_lost_total":                  0,
		"outbox_queue_hot_depth":                   0,
		"outbox_queue_cold_depth":                  0,
		"outbox_dispatch_latency_seconds":          4,
		"outbox_listener_duration_seconds":         7,
		"outbox_table_up":                          1,
		"outbox_table_read_errors_total":           0,
		"outbox_events_pending":                    2,
		"outbox_events_due":                        0,
		"outbox_events_delayed":                    2,
		"outbox_events_dead":                       1,
		"outbox_oldest_due_age_seconds":            0,
		"outbox_poll_interval_seconds":             5,
	} {
		require.InDelta(t, want, f.value(t, name), 0, name)
	}
	require.Positive(t, f.value(t, "outbox_batch_size"))
	now := float64(time.Now().Unix())
	require.InDelta(t, now, f.value(t, "outbox_last_poll_timestamp_seconds"), 30)
	require.InDelta(t, now, f.value(t, "outbox_table_read_timestamp_seconds"), 30)
	latency := f.metric(t, "outbox_dispatch_latency_seconds").GetHistogram()
	require.Positive(t, latency.GetSampleSum())
	require.Less(t, latency.GetSampleSum(), 60.0, "latencies are in seconds")
}

func TestHotDropsAndTheirDepthAreTold(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{Workers: 1, HotCapacity: 2},
		Poll:     outbox.PollOptions{Interval: time.Hour, SkipRecent: time.Hour},
	})
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	listen(s, "Slow", func(outbox.Envelope) error {
		entered <- struct{}{}
		<-leave
		return nil
	})
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { close(leave) })
	s.write(event("Slow"))
	<-entered
	for range 5 {
		s.write(event("Slow"))
	}
	f := scrape(t, s.registry)
	require.InDelta(t, 3, f.value(t, "outbox_enqueue_hot_total"), 0)
	require.InDelta(t, 3, f.value(t, "outbox_enqueue_hot_dropped_total"), 0)
	// The engine reports depths when it stores outcomes, which it does not do
	// here; reading the table updates them for the next scrape.
	require.InDelta(t, 2, scrape(t, s.registry).value(t, "outbox_queue_hot_depth"), 0)
	require.InDelta(t, 6, f.value(t, "outbox_events_pending"), 0)
}

func TestClosingTheOutboxTakesItsMetricsAway(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.SingleNode{})
	require.NotEmpty(t, scrape(t, s.registry))
	require.NoError(t, s.Close(t.Context()))
	require.Empty(t, scrape(t, s.registry))
	again := newMetrics(t, s.registry)
	require.NoError(t, again.WatchTable(&source{}), "the names are free again")
}

func TestADatabaseThatIsClosedIsAbsentAndNotUp(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.SingleNode{}) // not started
	require.NoError(t, s.db.Close())
	s.Metrics().HotDropped(outbox.EventKind{AggregateType: "Order", EventType: "Placed"})
	f := scrape(t, s.registry)
	require.Zero(t, f.value(t, "outbox_table_up"))
	require.InDelta(t, 1, f.value(t, "outbox_table_read_errors_total"), 0)
	require.InDelta(t, 1, f.value(t, "outbox_enqueue_hot_dropped_total"), 0, "metrics that are counted later are still reported")
	for _, name := range tableValues {
		require.NotContains(t, f, name)
	}
}

func TestAModeWithoutPollerTellsNoPoll(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.WriterOnly{})
	require.NoError(t, s.Start(t.Context()))
	s.write(event("Placed"))
	f := scrape(t, s.registry)
	require.InDelta(t, 1, f.value(t, "outbox_events_pending"), 0)
	require.NotContains(t, f, "outbox_last_poll_timestamp_seconds", "an alert on it would fire for ever")
	require.NotContains(t, f, "outbox_poll_interval_seconds")
}

func TestAPollerThatNeverGotThroughIsAtTheBeginningOfTime(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.SingleNode{}) // not started
	require.Zero(t, scrape(t, s.registry).value(t, "outbox_last_poll_timestamp_seconds"))
}

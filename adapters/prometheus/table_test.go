package outboxprom_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func lint(registry *prometheus.Registry) ([]promlint.Problem, error) {
	return testutil.GatherAndLint(registry)
}

// source is a table that answers as a test says.
type source struct {
	stats outbox.Stats
	read  func(ctx context.Context) (outbox.Stats, error) // nil: stats, at once
	reads atomic.Int32
}

func (s *source) Stats(ctx context.Context) (outbox.Stats, error) {
	s.reads.Add(1)
	if s.read != nil {
		return s.read(ctx)
	}
	return s.stats, nil
}

func watch(t testing.TB, s *source) (*prometheus.Registry, *outboxprom.Metrics) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry)
	require.NoError(t, m.WatchTable(s))
	return registry, m
}

// tableValues are the metrics that are absent when the table cannot be read.
var tableValues = []string{
	"outbox_events_pending", "outbox_events_due", "outbox_events_due_paused", "outbox_events_delayed", "outbox_events_dead",
	"outbox_oldest_due_age_seconds", "outbox_table_read_timestamp_seconds",
	"outbox_last_poll_timestamp_seconds", "outbox_poll_interval_seconds", "outbox_replay_progress_age_seconds",
}

func TestScrapeTellsWhatTheTableHolds(t *testing.T) {
	t.Parallel()
	polled := time.Date(2026, 5, 4, 3, 2, 1, 500e6, time.UTC)
	s := &source{stats: outbox.Stats{
		Pending: 7, Due: 4, DuePaused: 1, Delayed: 3, Dead: 2, OldestDueAge: 90 * time.Second, ReplayProgressAge: 700 * time.Second,
		HotDepth: 11, ColdDepth: 12, LastPoll: polled, PollInterval: 5 * time.Second, Paused: []outbox.Pause{{Kind: outbox.EventKind{EventType: "Paid"}, Since: time.Now()}, {Since: time.Now().Add(-time.Hour)}, {AggregateID: "7", Since: time.Now().Add(-2 * time.Hour)}},
	}}
	registry, _ := watch(t, s)
	scrape(t, registry)
	f := scrape(t, registry)
	for name, want := range map[string]float64{
		"outbox_events_pending": 7, "outbox_events_due": 4, "outbox_events_due_paused": 1, "outbox_events_delayed": 3, "outbox_events_dead": 2,
		"outbox_oldest_due_age_seconds": 90, "outbox_queue_hot_depth": 11, "outbox_queue_cold_depth": 12,
		"outbox_last_poll_timestamp_seconds": float64(polled.UnixMilli()) / 1000, "outbox_poll_interval_seconds": 5,
		"outbox_kinds_paused": 2, "outbox_keys_paused": 1, "outbox_replay_progress_age_seconds": 700, "outbox_table_up": 1, "outbox_table_read_errors_total": 0,
	} {
		require.InDelta(t, want, f.value(t, name), 0, name)
	}
	require.InDelta(t, 3600, f.value(t, "outbox_oldest_pause_age_seconds"), 60)
}

// The share has the labels of the kind, also without event labels.
func TestScrapeHasTheShareInLimitsOfAllProcesses(t *testing.T) {
	t.Parallel()
	registry, _ := watch(t, &source{stats: outbox.Stats{Shares: []outbox.OwnShare{
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, Parts: 3, Of: 8},
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Paid\xff"}, Of: 8},
	}}})
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP outbox_fleetwide_share The share of this process in the limits of a kind of event that all processes have together, from 0 to 1.
# TYPE outbox_fleetwide_share gauge
outbox_fleetwide_share{aggregate_type="Order",event_type="Paid�"} 0
outbox_fleetwide_share{aggregate_type="Order",event_type="Placed"} 0.375
`), "outbox_fleetwide_share"))
}

// A kind that is not late has no series.
func TestScrapeHasTheKindsThatAreLate(t *testing.T) {
	t.Parallel()
	s := &source{stats: outbox.Stats{Late: []outbox.LateKind{
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, MaxDueAge: 5 * time.Second, Events: 3, OldestDueAge: 6500 * time.Millisecond},
	}}}
	registry, _ := watch(t, s)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP outbox_kind_late_age_seconds How long the oldest event of a kind has been due, if this is longer than the MaxDueAge of the kind; absent while the kind is not late.
# TYPE outbox_kind_late_age_seconds gauge
outbox_kind_late_age_seconds{aggregate_type="Order",event_type="Placed"} 6.5
`), "outbox_kind_late_age_seconds"))
}

// A kind that is not paused has no series, and neither has a key.
func TestScrapeHasTheKindsThatArePaused(t *testing.T) {
	t.Parallel()
	stats := outbox.Stats{Paused: []outbox.Pause{
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, AggregateID: "7", Since: time.Now().Add(-3 * time.Hour)},
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, Since: time.Now().Add(-2 * time.Hour)},
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Paid"}, Since: time.Now().Add(time.Hour)}, // another clock
	}}
	registry, _ := watch(t, &source{stats: stats})
	families, err := registry.Gather()
	require.NoError(t, err)
	ages := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "outbox_kind_pause_age_seconds" {
				ages[m.GetLabel()[0].GetValue()+"/"+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	require.Len(t, ages, 2)
	require.InDelta(t, 7200, ages["Order/Placed"], 60)
	require.Zero(t, ages["Order/Paid"])
}

func TestWhenTheTableCannotBeReadItsValuesAreAbsentAndUpIsZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		s := &source{read: func(context.Context) (outbox.Stats, error) {
			if failing.Load() {
				return outbox.Stats{}, errors.New("the database is away")
			}
			return outbox.Stats{Pending: 5, PollInterval: time.Second}, nil
		}}
		registry, m := watch(t, s)
		require.InDelta(t, 5, gather(t, registry).value(t, "outbox_events_pending"), 0)
		failing.Store(true)
		time.Sleep(tablestats.ReadInterval)
		f := gather(t, registry)
		for _, name := range tableValues {
			require.NotContains(t, f, name)
		}
		require.Zero(t, f.value(t, "outbox_table_up"))
		require.InDelta(t, 1, f.value(t, "outbox_table_read_errors_total"), 0)
		m.HotEnqueued(placed)
		require.InDelta(t, 1, gather(t, registry).value(t, "outbox_enqueue_hot_total"), 0, "what does not need the table goes on")
		require.EqualValues(t, 2, s.reads.Load(), "a table that fails is not asked more often")

		failing.Store(false)
		time.Sleep(tablestats.ReadInterval)
		f = gather(t, registry)
		require.InDelta(t, 1, f.value(t, "outbox_table_up"), 0)
		for _, name := range tableValues {
			require.Contains(t, f, name)
		}
	})
}

func TestClosingEndsAReadAndNothingIsReadAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		s := &source{read: func(ctx context.Context) (outbox.Stats, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return outbox.Stats{}, ctx.Err()
		}}
		registry, m := watch(t, s)
		gather(t, registry)
		began := time.Now()
		require.NoError(t, m.Close())
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Empty(t, gather(t, registry))
		require.EqualValues(t, 1, s.reads.Load())
	})
}

func TestClosingSaysWhenAReadGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		registry := prometheus.NewPedanticRegistry()
		m, err := outboxprom.New(registry)
		require.NoError(t, err)
		require.NoError(t, m.WatchTable(&source{read: func(context.Context) (outbox.Stats, error) {
			<-release
			return outbox.Stats{}, nil
		}}))
		gather(t, registry)
		require.ErrorContains(t, m.Close(), "goes on")
		require.NoError(t, m.Close())
		close(release)
	})
}

func TestWatchTableRefusesAnOutboxThatDoesNotCountWithTheseMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry)
	db := testdb.Open(t, sqlite(t)).DB
	made := func(metrics outbox.Metrics) *outbox.Outbox {
		o, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite(), Metrics: metrics})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, o.Close(context.Background())) })
		return o
	}
	other, err := outboxprom.New(registry, outboxprom.WithPrefix("other"))
	require.NoError(t, err)
	var field *outbox.FieldError
	require.ErrorAs(t, m.WatchTable(made(nil)), &field)
	require.ErrorContains(t, field, "set its Config.Metrics")
	require.ErrorAs(t, m.WatchTable(made(other)), &field)
	require.ErrorContains(t, field, "watch it with those of its Config.Metrics")
	require.NoError(t, m.WatchTable(made(struct{ outbox.Metrics }{m})), "a type of the user's that passes on to these")
}

func TestWatchTableRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry)
	var none *outbox.Outbox
	var field *outbox.FieldError
	require.ErrorAs(t, m.WatchTable(nil), &field)
	require.ErrorAs(t, m.WatchTable(none), &field)
	require.NoError(t, m.WatchTable(&source{}))
	require.ErrorIs(t, m.WatchTable(&source{}), outboxprom.ErrRegistered)
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.WatchTable(&source{}), outbox.ErrClosed)
}

func TestKindsThatDifferInBytesThatAreNotUTF8DoNotFailAScrape(t *testing.T) {
	t.Parallel()
	kinds := []outbox.EventKind{{AggregateType: "A", EventType: "x\xff"}, {AggregateType: "A", EventType: "x\xfe"}}
	stats := outbox.Stats{}
	for _, kind := range kinds {
		stats.Paused = append(stats.Paused, outbox.Pause{Kind: kind, Since: time.Now()})
		stats.Late = append(stats.Late, outbox.LateKind{Kind: kind, OldestDueAge: time.Minute})
		stats.Shares = append(stats.Shares, outbox.OwnShare{Kind: kind, Parts: 1, Of: 2})
	}
	registry, _ := watch(t, &source{stats: stats})
	families, err := registry.Gather()
	require.NoError(t, err)
	found := 0
	for _, family := range families {
		switch family.GetName() {
		case "outbox_kind_pause_age_seconds", "outbox_kind_late_age_seconds", "outbox_fleetwide_share":
			require.Len(t, family.GetMetric(), 1)
			found++
		}
	}
	require.Equal(t, 3, found)
}

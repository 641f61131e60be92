package outboxprom_test

import (
	"context"
	"errors"
	"sync"
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
	"github.com/outboxkit/outbox-go/outbox"
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
	"outbox_events_pending", "outbox_events_due", "outbox_events_delayed", "outbox_events_dead",
	"outbox_oldest_due_age_seconds", "outbox_table_read_timestamp_seconds",
	"outbox_last_poll_timestamp_seconds", "outbox_poll_interval_seconds",
}

func TestTableIsReadAtMostOnceInTheIntervalWhateverTheScrapeRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		registry, _ := watch(t, s)
		require.Zero(t, s.reads.Load(), "nothing is read before a scrape")
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 601 {
					_, err := registry.Gather()
					if err != nil {
						t.Error(err)
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		wg.Wait() // a minute and 6,010 scrapes
		require.EqualValues(t, 5, s.reads.Load())
	})
}

func TestNothingReadsTheTableWhenNobodyScrapes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		registry, _ := watch(t, s)
		gather(t, registry)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, s.reads.Load())
	})
}

func TestScrapeTellsWhatTheTableHolds(t *testing.T) {
	t.Parallel()
	polled := time.Date(2026, 5, 4, 3, 2, 1, 500e6, time.UTC)
	s := &source{stats: outbox.Stats{
		Pending: 7, Due: 4, Delayed: 3, Dead: 2, OldestDueAge: 90 * time.Second,
		HotDepth: 11, ColdDepth: 12, LastPoll: polled, PollInterval: 5 * time.Second, Paused: make([]outbox.Pause, 2),
	}}
	registry, _ := watch(t, s)
	scrape(t, registry)
	f := scrape(t, registry)
	for name, want := range map[string]float64{
		"outbox_events_pending": 7, "outbox_events_due": 4, "outbox_events_delayed": 3, "outbox_events_dead": 2,
		"outbox_oldest_due_age_seconds": 90, "outbox_queue_hot_depth": 11, "outbox_queue_cold_depth": 12,
		"outbox_last_poll_timestamp_seconds": float64(polled.UnixMilli()) / 1000, "outbox_poll_interval_seconds": 5,
		"outbox_kinds_paused": 2, "outbox_table_up": 1, "outbox_table_read_errors_total": 0,
	} {
		require.InDelta(t, want, f.value(t, name), 0, name)
	}
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

func TestASlowTableDoesNotHoldUpAScrape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		s := &source{read: func(ctx context.Context) (outbox.Stats, error) {
			if slow.Load() {
				<-ctx.Done()
				return outbox.Stats{}, ctx.Err()
			}
			return outbox.Stats{Pending: 5}, nil
		}}
		registry, _ := watch(t, s)
		gather(t, registry)
		slow.Store(true)
		time.Sleep(tablestats.ReadInterval)

		began := time.Now()
		f := gather(t, registry)
		require.Equal(t, tablestats.Wait, time.Since(began))
		require.InDelta(t, 5, f.value(t, "outbox_events_pending"), 0, "the values of the read before, 16 seconds old")
		time.Sleep(tablestats.ReadTimeout)
		began = time.Now()
		f = gather(t, registry)
		require.Zero(t, time.Since(began))
		require.NotContains(t, f, "outbox_events_pending")
		require.Zero(t, f.value(t, "outbox_table_up"))
	})
}

func TestAReadThatNeverEndsIsTheOnlyOneAndATableThatIsNotUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var stuck atomic.Bool
		s := &source{read: func(context.Context) (outbox.Stats, error) {
			if stuck.Load() {
				<-release // like a driver that ignores the context
			}
			return outbox.Stats{Pending: 5}, nil
		}}
		registry, _ := watch(t, s)
		gather(t, registry)
		stuck.Store(true)
		time.Sleep(tablestats.ReadInterval)
		for range 3 {
			gather(t, registry)
			time.Sleep(tablestats.ReadInterval)
		}
		f := gather(t, registry)
		require.EqualValues(t, 2, s.reads.Load())
		require.Zero(t, f.value(t, "outbox_table_up"))
		require.NotContains(t, f, "outbox_events_pending")
		close(release)
		synctest.Wait()
		require.InDelta(t, 1, gather(t, registry).value(t, "outbox_table_up"), 0)
	})
}

// The read that a scrape begins ends after it: the next scrape shows the result.
func TestATableWhoseReadsOutlastAScrapeIsUp(t *testing.T) {
	t.Parallel()
	for interval, fresh := range map[time.Duration]bool{tablestats.ReadInterval: true, 61 * time.Second: true, 4 * time.Minute: true, time.Hour: false} {
		t.Run(interval.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry, _ := watch(t, &source{read: func(ctx context.Context) (outbox.Stats, error) {
					time.Sleep(1500 * time.Millisecond)
					return outbox.Stats{Pending: 5}, ctx.Err()
				}})
				gather(t, registry)
				for range 5 {
					time.Sleep(interval)
					f := gather(t, registry)
					require.InDelta(t, 1, f.value(t, "outbox_table_up"), 0)
					if fresh {
						require.InDelta(t, 5, f.value(t, "outbox_events_pending"), 0)
					} else {
						require.NotContains(t, f, "outbox_events_pending", "too old")
					}
				}
			})
		})
	}
}

func TestTheFirstScrapeOfASlowTableSaysThatItIsNotUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{read: func(ctx context.Context) (outbox.Stats, error) {
			time.Sleep(1500 * time.Millisecond)
			return outbox.Stats{Pending: 5}, ctx.Err()
		}}
		registry, _ := watch(t, s)
		require.Zero(t, gather(t, registry).value(t, "outbox_table_up"))
		f := gather(t, registry)
		require.InDelta(t, 1, f.value(t, "outbox_table_up"), 0)
		require.EqualValues(t, 1, s.reads.Load())
	})
}

func TestAPanicOfTheSourceIsAFailedRead(t *testing.T) {
	t.Parallel()
	registry, _ := watch(t, &source{read: func(context.Context) (outbox.Stats, error) { panic("no") }})
	f := scrape(t, registry)
	require.Zero(t, f.value(t, "outbox_table_up"))
	require.InDelta(t, 1, f.value(t, "outbox_table_read_errors_total"), 0)
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

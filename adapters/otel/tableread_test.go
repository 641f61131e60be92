package outboxotel_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestWhenTheTableCannotBeReadItsFiguresAreAbsentAndOneErrorIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const text = "reading the table of outbox: the database is away"
		var failing atomic.Bool
		s := &source{read: func(context.Context) (outbox.Stats, error) {
			if failing.Load() {
				return outbox.Stats{}, errors.New("the database is away")
			}
			return outbox.Stats{Pending: 5, PollInterval: time.Second}, nil
		}}
		p, _ := watch(t, s)
		before := reported(text)
		for burst := 1; burst <= 2; burst++ {
			failing.Store(false)
			require.Len(t, p.table(t), len(tableUnits))
			failing.Store(true)
			for n := range 3 {
				time.Sleep(tablestats.ReadInterval)
				require.ElementsMatch(t, []string{"outbox.table.up", "outbox.table.read.errors"}, slices.Collect(maps.Keys(p.table(t))))
				require.Zero(t, p.one(t, "outbox.table.up"))
				require.InDelta(t, 3*(burst-1)+n+1, p.one(t, "outbox.table.read.errors"), 0)
			}
			require.Equal(t, before+burst, reported(text))
			time.Sleep(tablestats.ReadInterval)
		}
		require.EqualValues(t, 8, s.reads.Load(), "a table that fails is not read more often")
	})
}

func TestReportingTheDepthsDoesNotDelayACollection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := watch(t, &source{read: func(context.Context) (outbox.Stats, error) {
			time.Sleep(10 * time.Millisecond)
			return outbox.Stats{Pending: 5, HotDepth: 1}, nil
		}})
		began := time.Now()
		require.InDelta(t, 5, p.one(t, "outbox.events.pending"), 0)
		require.Equal(t, 10*time.Millisecond, time.Since(began), "a collection holds the SDK's lock")
	})
}

func TestClosingEndsAReadAndTheCollectionThatWaitsForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{read: func(ctx context.Context) (outbox.Stats, error) {
			<-ctx.Done()
			return outbox.Stats{}, errors.New("the table was left alone")
		}}
		p, m := watch(t, s)
		collected := make(chan map[string][]figure, 1)
		began := time.Now()
		go func() { collected <- p.table(t) }()
		synctest.Wait()
		require.NoError(t, m.Close())
		require.Empty(t, <-collected)
		require.Zero(t, time.Since(began))
		require.Empty(t, p.table(t))
		require.EqualValues(t, 1, s.reads.Load())
		require.Zero(t, reported("the table was left alone"), "a read that closing ends is not a failure")
	})
}

func TestClosingSaysWhenAReadGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newMeters(t)
		m, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p))
		require.NoError(t, err)
		require.NoError(t, m.WatchTable(&source{read: func(context.Context) (outbox.Stats, error) {
			<-release
			return outbox.Stats{}, nil
		}}))
		require.NotEmpty(t, p.table(t))
		require.ErrorContains(t, m.Close(), "goes on")
		require.ErrorContains(t, m.Close(), "goes on", "closing again returns the same")
		require.Empty(t, p.table(t))
		close(release)
	})
}

package tenants_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/tenants"
)

// A metrics adapter watches the tables of all tenants.
var _ tablestats.Source = (*tenants.Manager[int])(nil)

// gauges keeps the last figures.
type gauges struct {
	outbox.NopMetrics
	hot, cold int
	lag       time.Duration
}

func (g *gauges) QueueDepths(hot, cold int) { g.hot, g.cold = hot, cold }
func (g *gauges) OldestLag(d time.Duration) { g.lag = d }
func (*gauges) Close() error                { panic("the shared metrics stay open") }

func TestTheMetricsOfTenantsAreThoseOfAll(t *testing.T) {
	t.Parallel()
	all := &gauges{}
	shared := tenants.ShareMetrics(all)
	a, b := shared.ForTenant(), shared.ForTenant()
	a.QueueDepths(3, 10)
	b.QueueDepths(1, 2)
	a.QueueDepths(2, 5)
	a.OldestLag(time.Second)
	b.OldestLag(time.Minute)
	require.Equal(t, gauges{hot: 3, cold: 7, lag: time.Minute}, *all)
	a.OldestLag(2 * time.Minute)
	b.OldestLag(0)
	require.Equal(t, 2*time.Minute, all.lag)

	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet, Metrics: a, Mode: outbox.MultiNode{}})
	require.NoError(t, err)
	require.NoError(t, ob.Close(t.Context()))
	require.Equal(t, gauges{hot: 1, cold: 2}, *all, "an outbox that closes takes its part away")
}

func TestTheFiguresOfTenantsAreAddedUp(t *testing.T) {
	t.Parallel()
	h := newHouse()
	now := time.Now().UTC()
	kind := outbox.EventKind{AggregateType: outbox.Global, EventType: "Other"}
	for i, name := range []string{"acme", "globex"} {
		store := h.store(name)
		for n := range 2 + i {
			at := now.Add(-time.Duration(i+1) * time.Hour)
			env := outbox.Envelope{EventID: string(rune('a' + n)), EventType: "Other", AggregateType: outbox.Global, Payload: outbox.RawJSON("1"), OccurredAt: at, AvailableAt: at}
			require.NoError(t, store.Insert(t.Context(), store.DB(), []outbox.Envelope{env}, "", now))
		}
		require.NoError(t, store.Pause(t.Context(), store.DB(), outbox.Pause{Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "Paused"}, Since: now.Add(-time.Duration(i) * time.Minute)}))
	}
	m := h.manager(t, nil)
	stats, err := m.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats, "no tenant")
	require.NoError(t, m.Set(t.Context(), "acme", "globex"))
	for _, name := range []string{"acme", "globex"} {
		require.NoError(t, m.Use(t.Context(), name, func(string) error { return nil }))
	}
	stats, err = m.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, stats.Due)
	require.EqualValues(t, 5, stats.Pending)
	require.InDelta(t, 2*time.Hour, stats.OldestDueAge, float64(time.Minute))
	require.Len(t, stats.Paused, 1)
	require.True(t, stats.Paused[0].Since.Before(now), "the pause that began first")
	require.NotZero(t, stats.PollInterval)
	require.Eventually(t, func() bool {
		stats, err = m.Stats(t.Context())
		return err == nil && len(stats.Unheard) == 1 && stats.Unheard[0] == kind
	}, time.Minute, 10*time.Millisecond)
}

// A tenant whose table cannot be read is left out.
func TestTheFiguresOfTheTenantsThatAnswer(t *testing.T) {
	t.Parallel()
	stores := map[string]outbox.Store{"acme": outboxtest.NewStore(), "globex": unreadable{outboxtest.NewStore()}}
	m, err := tenants.New(tenants.Config[int]{Logger: quiet, Open: func(_ context.Context, name string) (opened tenants.Tenant[int], err error) {
		opened.Outbox, err = outbox.New(outbox.Config{DB: outboxtest.NewStore().DB(), Store: stores[name], Logger: quiet, Mode: outbox.WriterOnly{}})
		return opened, err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, m.Set(t.Context(), "acme", "globex"))
	for name := range stores {
		require.NoError(t, m.Use(t.Context(), name, func(int) error { return nil }))
	}
	_, err = m.Stats(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Set(t.Context(), "globex"))
	_, err = m.Stats(t.Context())
	require.ErrorContains(t, err, "the table of globex: disk failure")
}

type unreadable struct{ *outboxtest.Store }

func (unreadable) Stats(context.Context, outbox.DB, time.Time, []outbox.EventKind) (outbox.StoreStats, error) {
	return outbox.StoreStats{}, errors.New("disk failure")
}

package outboxotel_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/adapters/otel"
)

// callbacks is a provider that counts the callbacks that are registered.
type callbacks struct {
	metric.MeterProvider
	now atomic.Int32
}

func (c *callbacks) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return callbackMeter{c.MeterProvider.Meter(name, opts...), c}
}

type callbackMeter struct {
	metric.Meter
	of *callbacks
}

func (m callbackMeter) RegisterCallback(f metric.Callback, instruments ...metric.Observable) (metric.Registration, error) {
	r, err := m.Meter.RegisterCallback(f, instruments...)
	m.of.now.Add(1)
	return registration{r, m.of}, err
}

type registration struct {
	metric.Registration
	of *callbacks
}

func (r registration) Unregister() error {
	r.of.now.Add(-1)
	return r.Registration.Unregister()
}

func TestMetricsThatAreNeverUsedLeaveNoCallback(t *testing.T) {
	t.Parallel()
	p := &callbacks{MeterProvider: newMeters(t)}
	m, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p))
	require.NoError(t, err)
	m.HotEnqueued(kind) // as a write before the start
	require.Zero(t, p.now.Load())

	m.QueueDepths(1, 2)
	m.OldestLag(0)
	m.QueueDepths(0, 0)
	require.EqualValues(t, 1, p.now.Load())
	require.NoError(t, m.Close())
	require.Zero(t, p.now.Load())

	unused, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p))
	require.NoError(t, err)
	require.NoError(t, unused.Close())
	unused.QueueDepths(1, 1)
	require.Zero(t, p.now.Load(), "a closed one registers nothing")
}

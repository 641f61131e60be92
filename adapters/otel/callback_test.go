package outboxotel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/adapters/otel/internal/oteltest"
)

func TestMetricsThatAreNeverUsedLeaveNoCallback(t *testing.T) {
	t.Parallel()
	p := &oteltest.Callbacks{MeterProvider: newMeters(t)}
	m, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p))
	require.NoError(t, err)
	m.HotEnqueued(kind) // as a write before the start
	require.Zero(t, p.Count())

	m.QueueDepths(1, 2)
	m.OldestLag(0)
	m.QueueDepths(0, 0)
	require.Equal(t, 1, p.Count())
	require.NoError(t, m.Close())
	require.Zero(t, p.Count())

	unused, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p))
	require.NoError(t, err)
	require.NoError(t, unused.Close())
	unused.QueueDepths(1, 1)
	require.Zero(t, p.Count(), "a closed one registers nothing")
}

package monitoring_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

// Exporters that follow the specification replace dots by underscores and append
// the unit unless it is in braces, "total" to a counter, and "ratio" to a gauge
// whose unit is 1.
func TestExportedToPrometheusTheNamesOfOpenTelemetryAreTheSame(t *testing.T) {
	t.Parallel()
	want := gather(t)
	for name, family := range want {
		require.Equal(t, family.GetType() == dto.MetricType_COUNTER, strings.HasSuffix(name, "_total"), name)
	}
	var data metricdata.ResourceMetrics
	require.NoError(t, recorded(t).Collect(t.Context(), &data))
	var got []string
	for _, m := range data.ScopeMetrics[0].Metrics {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		if _, counter := m.Data.(metricdata.Sum[int64]); counter {
			name += "_total"
		} else {
			require.NotEqual(t, "1", m.Unit, name)
		}
		got = append(got, name)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), got)
}

// recorded reads metrics that were called once each.
func recorded(t *testing.T) metric.Reader {
	t.Helper()
	reader := metric.NewManualReader()
	m, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.NoError(t, m.WatchTable(polled{}))
	kind := outbox.EventKind{AggregateType: "Order", EventType: "Placed"}
	for _, call := range []func(outbox.EventKind){m.HotEnqueued, m.HotDropped, m.HotSkippedDelayed, m.ColdEnqueued, m.Failed, m.Died, m.Deferred} {
		call(kind)
	}
	m.Delivered(kind, time.Second)
	m.ListenerRan(kind, time.Second)
	m.LeaseLost(1)
	m.QueueDepths(1, 1)
	m.OldestLag(time.Second)
	m.BatchRead(1)
	return reader
}

package outboxotel_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/outbox"
)

// Exporters that follow the specification replace dots by underscores and append
// the unit unless it is in braces, "total" to a counter, and "ratio" to a gauge
// whose unit is 1.
func TestExportedToPrometheusTheNamesAreThoseOfOutboxprom(t *testing.T) {
	t.Parallel()
	stats := outbox.Stats{PollInterval: time.Second}
	registry := prometheus.NewPedanticRegistry()
	scraped, err := outboxprom.New(registry)
	require.NoError(t, err)
	require.NoError(t, scraped.WatchTable(always(stats)))
	families, err := registry.Gather()
	require.NoError(t, err)
	var want []string
	for _, f := range families {
		want = append(want, f.GetName())
		require.Equal(t, f.GetType() == dto.MetricType_COUNTER, strings.HasSuffix(f.GetName(), "_total"), f.GetName())
	}
	require.NoError(t, scraped.Close())

	p, m := watch(t, always(stats))
	callAll(m)
	var data metricdata.ResourceMetrics
	require.NoError(t, p.reader.Collect(t.Context(), &data))
	var got []string
	for _, md := range data.ScopeMetrics[0].Metrics {
		name := strings.ReplaceAll(md.Name, ".", "_")
		if md.Unit == "s" {
			name += "_seconds"
		}
		if _, counter := md.Data.(metricdata.Sum[int64]); counter {
			name += "_total"
		} else {
			require.NotEqual(t, "1", md.Unit, name)
		}
		got = append(got, name)
	}
	require.ElementsMatch(t, want, got)
}

package outboxotel_test

import (
	"context"
	"maps"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// meters is an SDK that is read by hand.
type meters struct {
	*sdkmetric.MeterProvider
	reader *sdkmetric.ManualReader
}

func newMeters(t testing.TB) *meters {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	return &meters{p, reader}
}

// figure is one point of a metric: the sum, the value, or how many were
// recorded.
type figure struct {
	unit   string
	value  float64
	labels string
}

// read is every point, by the metric's name.
func (m *meters) read(t testing.TB) map[string][]figure {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(context.Background(), &rm))
	figures := map[string][]figure{}
	for _, scope := range rm.ScopeMetrics {
		require.Equal(t, "github.com/outboxkit/outbox-go/adapters/otel", scope.Scope.Name)
		for _, md := range scope.Metrics {
			require.NotEmpty(t, md.Description, md.Name)
			add := func(set attribute.Set, value float64) {
				labels := set.Encoded(attribute.DefaultEncoder())
				figures[md.Name] = append(figures[md.Name], figure{md.Unit, value, labels})
			}
			switch data := md.Data.(type) {
			case metricdata.Sum[int64]:
				require.Equal(t, md.Name != "outbox.relay.in.flight", data.IsMonotonic)
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Sum)
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Sum))
				}
			default:
				t.Fatalf("%s is a %T", md.Name, data)
			}
		}
	}
	return figures
}

// table is every point of what [outboxotel.Metrics.WatchTable] adds.
func (m *meters) table(t testing.TB) map[string][]figure {
	t.Helper()
	figures := m.read(t)
	maps.DeleteFunc(figures, func(name string, _ []figure) bool { return !ofTable.MatchString(name) })
	return figures
}

var ofTable = regexp.MustCompile(`\.(events|replay|oldest|last\.poll|poll|kinds|keys|table)\.`)

// one is the only point of a metric, zero when there is none.
func (m *meters) one(t testing.TB, name string) float64 {
	t.Helper()
	points := m.read(t)[name]
	if len(points) == 0 {
		return 0
	}
	require.Len(t, points, 1, name)
	return points[0].value
}

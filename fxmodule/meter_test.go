package outboxfx_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/fx"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/oteltest"
	"github.com/outboxkit/outbox-go/outbox"
)

// meters is an SDK that is read by hand and counts the callbacks that it has.
type meters struct {
	oteltest.Callbacks
	reader *sdkmetric.ManualReader
}

func newMeters() *meters {
	reader := sdkmetric.NewManualReader()
	return &meters{oteltest.Callbacks{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}, reader}
}

// points are the attributes of the points of a metric.
func (m *meters) points(t *testing.T, name string) (points []string) {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(t.Context(), &data))
	for _, scope := range data.ScopeMetrics {
		for _, found := range scope.Metrics {
			sum, isSum := found.Data.(metricdata.Sum[int64])
			if found.Name != name || !isSum {
				continue
			}
			for _, p := range sum.DataPoints {
				points = append(points, p.Attributes.Encoded(attribute.DefaultEncoder()))
			}
		}
	}
	return points
}

func TestAnAppThatIsNotThereLeavesNothingWithTheProvider(t *testing.T) {
	t.Parallel()
	for _, aborted := range abortedApps() {
		t.Run(aborted.name, func(t *testing.T) {
			t.Parallel()
			db, provider := openSQLite(t), newMeters()
			metrics := outboxfx.WithOTelMetrics(outboxotel.WithMeterProvider(provider))
			aborted.run(t, db, metrics)
			require.Zero(t, provider.Count())

			app := started(t, fx.Supply(db), outboxfx.NewModule(metrics))
			require.Eventually(t, func() bool { return provider.Count() > 0 }, 20*time.Second, 2*time.Millisecond)
			app.RequireStop()
			require.Zero(t, provider.Count())
		})
	}
}

func TestANamedOutboxsMetricsHaveItsName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		opts []outboxfx.Option
		name string
		want string
	}{
		{nil, "outbox.enqueue.hot.skipped.delayed", ""},
		{[]outboxfx.Option{outboxfx.Named("orders")}, "outbox.enqueue.hot.skipped.delayed", "outbox=orders"},
		{
			[]outboxfx.Option{outboxfx.Named("orders"), outboxfx.WithConfig(outboxfx.Config{Metrics: outboxfx.MetricsConfig{NamePrefix: "orders.outbox"}})},
			"orders.outbox.enqueue.hot.skipped.delayed", "outbox=orders",
		},
	} {
		db, provider := openSQLite(t), newMeters()
		var w *outbox.Writer
		metrics := outboxfx.WithOTelMetrics(outboxotel.WithMeterProvider(provider))
		name := `name:"orders"`
		if tc.want == "" {
			name = ""
		}
		started(t, fx.Supply(db), named("orders", db), outboxfx.NewModule(append(tc.opts, metrics)...),
			fx.Invoke(fx.Annotate(func(got *outbox.Writer) { w = got }, fx.ParamTags(name))))
		env := placed("o-1")
		env.DeliverAfter = 1 << 40
		write(t, db, w, env)
		require.Equal(t, []string{tc.want}, provider.points(t, tc.name))
	}
}

func TestWithOTelMetricsRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	no, provider := false, newMeters()
	prefixed := outboxfx.WithOTelMetrics(outboxotel.WithMeterProvider(provider), outboxotel.WithPrefix("mine"))
	for _, tc := range []struct {
		option outboxfx.Option
		cfg    outboxfx.MetricsConfig
		want   string // empty: no error
	}{
		{prefixed, outboxfx.MetricsConfig{NamePrefix: "shop"}, "the configuration of the outbox: metrics.name-prefix is set, but outboxotel.WithPrefix replaces it"},
		{prefixed, outboxfx.MetricsConfig{}, ""},
		{outboxfx.WithOTelMetrics(outboxotel.WithEventKinds(-1)), outboxfx.MetricsConfig{}, "WithEventKinds"},
		{outboxfx.WithOTelMetrics(outboxotel.WithEventKinds(-1)), outboxfx.MetricsConfig{Enabled: &no}, ""},
	} {
		err := newError(fx.Supply(openSQLite(t), outboxfx.Config{Metrics: tc.cfg}), outboxfx.NewModule(tc.option))
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.want)
	}
}

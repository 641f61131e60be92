package outboxfx_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/fx"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// gathered is the counters and gauges without labels in a registry, by name.
func gathered(t require.TestingT, registry *prometheus.Registry) map[string]float64 {
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			values[family.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

func TestPrometheusIsScrapedAndUnregistered(t *testing.T) {
	t.Parallel()
	db, registry, box := openSQLite(t), prometheus.NewRegistry(), newInbox()
	var w *outbox.Writer
	app := fx.New(fx.NopLogger, named("orders", db),
		outboxfx.NewModule(outboxfx.Named("orders"), outboxfx.WithPrometheus(registry)),
		outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed"), outboxfx.For("orders")),
		fx.Populate(fx.Annotate(&w, fx.ParamTags(`name:"orders"`))))
	require.NoError(t, app.Start(t.Context()))
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		values := gathered(c, registry)
		require.InDelta(c, 1, values["outbox_enqueue_hot_total"], 0)
		require.InDelta(c, 1, values["outbox_dispatch_success_total"], 0)
		require.InDelta(c, 1, values["outbox_table_up"], 0, "the table is watched")
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, app.Stop(t.Context()))
	require.Empty(t, gathered(t, registry))
}

func TestMetricsThatAreSwitchedOffAreNotScraped(t *testing.T) {
	t.Parallel()
	no, registry := false, prometheus.NewRegistry()
	started(t, fx.Supply(openSQLite(t), outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &no}}),
		outboxfx.NewModule(outboxfx.WithPrometheus(registry)),
		outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed")), fx.Invoke(func(*outbox.Outbox) {}))
	require.Empty(t, gathered(t, registry))
}

func TestOnePlaceForMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	err := newError(fx.Supply(openSQLite(t)), outboxfx.NewModule(outboxfx.WithPrometheus(registry), outboxfx.WithOTelMetrics()))
	require.ErrorContains(t, err, "WithPrometheus and WithOTelMetrics of the outbox both say where metrics go")

	taken := fx.Options(fx.Supply(openSQLite(t)), outboxfx.NewModule(outboxfx.WithPrometheus(registry)),
		outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed")))
	started(t, taken)
	require.ErrorContains(t, newError(taken), "already registered")
}

func TestOTelMetricsWatchTheTableUntilTheAppStops(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	table := func() map[string]int64 {
		var data metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &data))
		values := map[string]int64{}
		for _, scope := range data.ScopeMetrics {
			for _, m := range scope.Metrics {
				if gauge, ok := m.Data.(metricdata.Gauge[int64]); ok && len(gauge.DataPoints) == 1 {
					values[m.Name] = gauge.DataPoints[0].Value
				}
			}
		}
		return values
	}
	db := openSQLite(t)
	w, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite(), Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	later := placed("o-1")
	later.DeliverAfter = time.Hour
	write(t, db, w.Writer(), later)
	app := fx.New(fx.NopLogger, fx.Supply(db),
		outboxfx.NewModule(outboxfx.WithOTelMetrics(outboxotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))),
		outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed")), fx.Invoke(func(*outbox.Outbox) {}))
	require.NoError(t, app.Start(t.Context()))
	values := table()
	require.EqualValues(t, 1, values["outbox.table.up"])
	require.EqualValues(t, 1, values["outbox.events.delayed"])
	require.NoError(t, app.Stop(t.Context()))
	require.Empty(t, table())
}

func TestWritesAndDeliveriesAreTraced(t *testing.T) {
	t.Parallel()
	db, spans, box := openSQLite(t), tracetest.NewInMemoryExporter(), newInbox()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	var w *outbox.Writer
	started(t, fx.Supply(db),
		outboxfx.NewModule(outboxfx.WithOTel(outboxotel.WithTracerProvider(provider)), outboxfx.WithOTelMetrics(outboxotel.WithMeterProvider(meters))),
		outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")), fx.Populate(&w))
	ctx, request := provider.Tracer("test").Start(t.Context(), "request")
	require.NoError(t, outbox.InTx(ctx, adaptertest.Adapter(t, db, w), func(ctx context.Context) error {
		_, err := w.Write(ctx, placed("o-1"))
		return err
	}))
	request.End()
	box.awaits(t, "o-1")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, span := range spans.GetSpans() {
			if len(span.Links) == 1 && span.Links[0].SpanContext.TraceID() == request.SpanContext().TraceID() {
				return
			}
		}
		require.Fail(c, "no delivery is linked with the request")
	}, 20*time.Second, 5*time.Millisecond)
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	require.NotEmpty(t, data.ScopeMetrics)
}

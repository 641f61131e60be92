package fxotel_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/fxotel"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attributes are those of the points of each metric.
func attributes(t *testing.T, reader *metric.ManualReader) map[string]string {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	found := map[string]string{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				found[m.Name] = d.DataPoints[0].Attributes.Encoded(attribute.DefaultEncoder())
			case metricdata.Gauge[int64]:
				found[m.Name] = d.DataPoints[0].Attributes.Encoded(attribute.DefaultEncoder())
			}
		}
	}
	return found
}

func write(ctx context.Context, t *testing.T, db *sql.DB, w *outbox.Writer, env outbox.Envelope) {
	t.Helper()
	scope := outboxtest.NewScope(db)
	env.Payload = outbox.RawJSON("1")
	_, err := w.Write(scope.Context(ctx), env)
	require.NoError(t, errors.Join(err, scope.Commit()))
}

func TestMetricsAreExportedWhileTheAppRuns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, prefix, metrics, attributes string }{
		{"", "", "outbox", ""},
		{"orders", "", "outbox", "outbox=orders"},
		{"orders", "shop", "shop", "outbox=orders"},
	} {
		reader, db := metric.NewManualReader(), new(sql.DB)
		opts := []outboxfx.Option{
			outboxfx.WithStore(outboxtest.NewStore()), fxotel.Metrics(outboxotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))),
			outboxfx.WithConfig(outboxfx.Config{Metrics: outboxfx.MetricsConfig{NamePrefix: tc.prefix}}),
		}
		tag := ""
		if tc.name != "" {
			opts, tag = append(opts, outboxfx.Named(tc.name)), `name:"`+tc.name+`"`
		}
		var w *outbox.Writer
		app := fx.New(fx.NopLogger, fx.Supply(fx.Annotate(db, fx.ResultTags(tag))), outboxfx.NewModule(opts...), fx.Populate(fx.Annotate(&w, fx.ParamTags(tag))))
		require.NoError(t, app.Err())
		require.Empty(t, attributes(t, reader), "an app that was not started exports nothing")
		require.NoError(t, app.Start(t.Context()))
		write(t.Context(), t, db, w, outbox.Envelope{EventType: "Placed", DeliverAfter: 1 << 40})
		found := attributes(t, reader)
		require.Equal(t, tc.attributes, found[tc.metrics+".enqueue.hot.skipped.delayed"])
		require.Contains(t, found, tc.metrics+".table.up", "the table is watched")
		require.NoError(t, app.Stop(t.Context()))
		require.NotContains(t, attributes(t, reader), tc.metrics+".table.up")
	}
}

func TestWritesAndDeliveriesAreTracedUnlessSwitchedOff(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{true, false} {
		spans, db, recorder := tracetest.NewInMemoryExporter(), new(sql.DB), outboxtest.NewRecorder()
		provider := trace.NewTracerProvider(trace.WithSyncer(spans))
		var w *outbox.Writer
		app := fx.New(fx.NopLogger, fx.Supply(db), fx.Populate(&w),
			fx.Replace(outboxfx.Config{Tracing: outboxfx.TracingConfig{Enabled: &enabled}}),
			outboxfx.NewModule(outboxfx.WithStore(outboxtest.NewStore()), fxotel.Tracing(outboxotel.WithTracerProvider(provider))),
			outboxfx.AsListener(func() outbox.Listener { return recorder.Listener() }, outboxfx.On("Order", "Placed")))
		require.NoError(t, errors.Join(app.Err(), app.Start(t.Context())))
		ctx, request := provider.Tracer("test").Start(t.Context(), "request")
		write(ctx, t, db, w, outbox.Envelope{EventType: "Placed", AggregateType: "Order"})
		recorder.WaitDeliveries(t, 1)
		require.NoError(t, app.Stop(t.Context()))
		request.End()
		var links int
		for _, span := range spans.GetSpans() {
			links += len(span.Links)
		}
		require.Equal(t, map[bool]int{true: 1}[enabled], links, "the delivery is linked with the request")
	}
}

func TestWrongOptionsAreErrorsOfTheApp(t *testing.T) {
	t.Parallel()
	err := fx.New(fx.NopLogger, fx.Supply(new(sql.DB)), outboxfx.NewModule(outboxfx.WithStore(outboxtest.NewStore()), fxotel.Metrics(outboxotel.WithEventKinds(-1)))).Err()
	require.ErrorContains(t, err, "WithEventKinds")
}

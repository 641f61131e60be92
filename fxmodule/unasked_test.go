package outboxfx_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// It sets the global provider and registry, so it runs while no other test does.
// That nothing is traced is a case of the test for tracing.
func TestNothingIsMeasuredUnlessSomebodyAsks(t *testing.T) {
	reader, registry := sdkmetric.NewManualReader(), prometheus.NewRegistry()
	beforeProvider, beforeRegisterer := otel.GetMeterProvider(), prometheus.DefaultRegisterer
	t.Cleanup(func() {
		otel.SetMeterProvider(beforeProvider)
		prometheus.DefaultRegisterer = beforeRegisterer
	})
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	prometheus.DefaultRegisterer = registry
	for _, tc := range []struct {
		name          string
		opts          []outboxfx.Option
		scraped, otel bool
	}{
		{"nothing", nil, false, false},
		{"WithPrometheus", []outboxfx.Option{outboxfx.WithPrometheus(nil)}, true, false},
		{"WithOTelMetrics", []outboxfx.Option{outboxfx.WithOTelMetrics()}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db, box := openSQLite(t), newInbox()
			var w *outbox.Writer
			app := fx.New(fx.NopLogger, fx.Supply(db), outboxfx.NewModule(tc.opts...), fx.Populate(&w),
				outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")),
				fx.Provide(func() prometheus.Registerer { return registry }))
			require.NoError(t, app.Start(t.Context()))
			write(t, db, w, placed("o-1"))
			box.awaits(t, "o-1")
			var collected metricdata.ResourceMetrics
			require.NoError(t, reader.Collect(t.Context(), &collected))
			require.Equal(t, tc.scraped, len(gathered(t, registry)) > 0)
			require.Equal(t, tc.otel, len(collected.ScopeMetrics) > 0)
			require.NoError(t, app.Stop(t.Context()))
		})
	}
}

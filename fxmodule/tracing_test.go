package outboxfx_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/fx"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// It sets the global provider, so it runs while no other test does.
func TestTracingIsSwitchedOnAndOffByTheConfiguration(t *testing.T) {
	global := trace.NewTracerProvider()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(global)
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	own := trace.NewTracerProvider(trace.WithSyncer(tracetest.NewInMemoryExporter()))
	yes, no := true, false
	for _, tc := range []struct {
		name    string
		enabled *bool
		opts    []outboxfx.Option
		traced  bool
	}{
		{"neither", nil, nil, false},
		{"the key", &yes, nil, true},
		{"the option", nil, []outboxfx.Option{outboxfx.WithOTel(outboxotel.WithTracerProvider(own))}, true},
		{"both", &yes, []outboxfx.Option{outboxfx.WithOTel()}, true},
		{"the option, and the key says no", &no, []outboxfx.Option{outboxfx.WithOTel()}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db, box := openSQLite(t), newInbox()
			spans := tracetest.NewInMemoryExporter()
			processor := trace.NewSimpleSpanProcessor(spans)
			for _, p := range []*trace.TracerProvider{global, own} {
				p.RegisterSpanProcessor(processor)
				t.Cleanup(func() { p.UnregisterSpanProcessor(processor) })
			}
			var w *outbox.Writer
			app := fx.New(fx.NopLogger, fx.Supply(db, outboxfx.Config{Tracing: outboxfx.TracingConfig{Enabled: tc.enabled}}),
				outboxfx.NewModule(tc.opts...), fx.Populate(&w),
				outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")))
			require.NoError(t, app.Start(t.Context()))
			ctx, request := global.Tracer("test").Start(t.Context(), "request")
			require.NoError(t, outbox.InTx(ctx, adaptertest.Adapter(t, db, w), func(ctx context.Context) error {
				_, err := w.Write(ctx, placed("o-1"))
				return err
			}))
			box.awaits(t, "o-1")
			require.NoError(t, app.Stop(t.Context()))
			request.End()
			require.Equal(t, tc.traced, len(spans.GetSpans()) == 2, "the request and its delivery")
			require.Equal(t, tc.traced, len(box.envs[0].Headers) > 0)
		})
	}
}

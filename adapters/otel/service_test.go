package outboxotel_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/outboxkit/outbox-go/adapters/otel"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// TestOneTraceFromTheRequestToTheListener is the walk through a trace of
// docs/how-to/traces.md, in a service that fx wires.
func TestOneTraceFromTheRequestToTheListener(t *testing.T) {
	t.Parallel()
	spans, figures := newRecording(t), newMeters(t)
	db := openDB(t)
	tracer := spans.Tracer("shop")
	opts := []outboxotel.Option{
		outboxotel.WithTracerProvider(spans), outboxotel.WithProducerSpan(), outboxotel.WithChildOf(),
	}
	topic := outbox.NewTopic[string](order, placed)
	var writer *outbox.Writer
	app := fxtest.New(t,
		fx.NopLogger,
		fx.Provide(func() *sql.DB { return db.DB }),
		outboxfx.NewModule(
			outboxfx.WithHooks(outboxotel.Hook(opts...)),
			outboxfx.WithInterceptors(outboxotel.Interceptor(opts...)),
			outboxfx.WithMetrics(func(prefix outboxfx.MetricsPrefix) (*outboxotel.Metrics, error) {
				return outboxotel.NewMetrics(outboxotel.WithMeterProvider(figures), outboxotel.WithPrefix(string(prefix)))
			}),
		),
		outboxfx.AsBinding(func() outbox.Binding {
			return topic.Listen(func(ctx context.Context, _ string, _ outbox.Envelope) error {
				_, mail := tracer.Start(ctx, "send mail", trace.WithSpanKind(trace.SpanKindClient))
				mail.End()
				return nil
			})
		}),
		fx.Populate(&writer),
	).RequireStart()
	defer app.RequireStop()

	// What a server's middleware and its handler do.
	adapter := adaptertest.Adapter(t, db.DB, writer)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, request := tracer.Start(ctx, "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
		defer request.End()
		err := adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := adapter.Write(ctx, tx, topic.Envelope("o-1", "an order"))
			return err
		})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	require.NoError(t, err)
	request.Header.Set("traceparent", remoteParent) // of the caller
	response, err := server.Client().Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)

	parent := trace.SpanID{2} // the caller's
	for _, name := range []string{"POST /orders", "write order/order.placed", deliverPlaced, "send mail"} {
		span := spans.wait(t, name, 1)[0]
		require.Equal(t, trace.TraceID{1}, span.SpanContext.TraceID(), "%s is in the caller's trace", name)
		require.Equal(t, parent, span.Parent.SpanID(), "the parent of %s", name)
		parent = span.SpanContext.SpanID()
	}
	eventually(t, func() bool { return figures.one(t, "outbox.dispatch.success") == 1 }, "the figures")
}

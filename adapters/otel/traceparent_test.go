package outboxotel_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

// FuzzTraceparent compares the default's reading of headers with that of the
// propagator that it replaces.
func FuzzTraceparent(f *testing.F) {
	for _, h := range []string{
		remoteParent,
		"",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-04",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-11",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0/",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
		"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
		"00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
	} {
		f.Add(h, "", "")
		f.Add(h, "vendor=1", "")
		f.Add(h, "", "customer=42")
	}
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	f.Fuzz(func(t *testing.T, traceparent, tracestate, baggage string) {
		headers := map[string]string{"traceparent": traceparent, "tracestate": tracestate, "baggage": baggage}
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(headers)))

		exporter.Reset()
		env := event()
		env.Headers = headers
		deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(provider))(outbox.ListenerFunc(succeed))
		err := deliver.OnEvent(context.Background(), env)
		require.NoError(t, err)
		span := exporter.GetSpans()[0]
		if !want.IsValid() {
			require.Empty(t, span.Links)
			return
		}
		require.Len(t, span.Links, 1)
		require.True(t, want.Equal(span.Links[0].SpanContext), "%v, want %v", span.Links[0].SpanContext, want)
	})
}

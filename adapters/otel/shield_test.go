package outboxotel_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

// broken is a processor that panics.
type broken struct {
	nowhere
	onStart, onEnd any
}

func (b broken) OnStart(context.Context, sdktrace.ReadWriteSpan) { panicWith(b.onStart) }

func (b broken) OnEnd(sdktrace.ReadOnlySpan) { panicWith(b.onEnd) }

func panicWith(v any) {
	if v != nil {
		panic(v)
	}
}

func TestAPanicOfTracingDoesNotAffectTheDelivery(t *testing.T) {
	t.Parallel()
	for name, processor := range map[string]broken{
		"when a span starts": {onStart: "broken start"},
		"when a span ends":   {onEnd: "broken end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor))
			calls := make(chan string, 10)
			a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(p), outboxotel.WithProducerSpan()),
				on(func(_ context.Context, env outbox.Envelope) error {
					calls <- env.EventID
					return nil
				}))
			id := a.write(t.Context(), t, event())[0]
			require.Equal(t, id, <-calls)
			eventually(t, func() bool {
				stats, err := a.Stats(context.Background())
				require.NoError(t, err)
				return stats.Pending == 0 && stats.Dead == 0
			}, "the event to be done")
			require.Empty(t, calls, "delivered once")
		})
	}
}

func TestTracingErrorsAreReportedOnce(t *testing.T) {
	t.Parallel()
	const refused, panicked = `the header "of this test" cannot be stored`, "injecting a trace context: panic: in this test"
	refusedBefore, panickedBefore := reported(refused), reported(panicked) // in an earlier run of the test
	hook := outboxotel.Hook(outboxotel.WithPropagator(format{inject: func(c propagation.TextMapCarrier) { c.Set("of this test", "\x00") }}))
	for range 3 {
		_, err := hook.BeforeWrite(remoteContext(t), withHeaders(nil))
		require.NoError(t, err)
	}
	require.Equal(t, 1, reported(refused)-refusedBefore)

	hook = outboxotel.Hook(outboxotel.WithPropagator(format{inject: func(propagation.TextMapCarrier) { panic("in this test") }}))
	for range 3 {
		_, err := hook.BeforeWrite(remoteContext(t), withHeaders(nil))
		require.NoError(t, err)
	}
	require.Equal(t, 1, reported(panicked)-panickedBefore)
}

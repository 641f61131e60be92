package outboxotel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

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
				on(func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
					calls <- env.EventID
					return outbox.Done(), nil
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

// poor is an SDK that returns only one span, or none.
type poor struct {
	noop.TracerProvider
	span trace.Span
}

func (p poor) Tracer(string, ...trace.TracerOption) trace.Tracer { return poorTracer{span: p.span} }

type poorTracer struct {
	noop.Tracer
	span trace.Span
}

func (p poorTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return trace.ContextWithSpan(ctx, p.span), p.span
}

// rotten is a span with only one or two working methods.
type rotten struct {
	trace.Span // nil
	recording  bool
}

func (r *rotten) IsRecording() bool { return r.recording }

func TestInvalidSpansDoNotAffectWritesAndDeliveries(t *testing.T) {
	t.Parallel()
	for name, span := range map[string]trace.Span{"nil": nil, "a nil pointer": (*rotten)(nil), "not recording": &rotten{}, "recording": &rotten{recording: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := []outboxotel.Option{outboxotel.WithTracerProvider(poor{span: span})}
			envs, err := outboxotel.Hook(append(opts, outboxotel.WithProducerSpan())...).BeforeWrite(t.Context(), []outbox.Envelope{event()})
			require.NoError(t, err)
			require.Empty(t, envs[0].Headers)
			boom := errors.New("boom")
			calls := 0
			_, err = outboxotel.Interceptor(opts...)(outbox.ListenerFunc(func(ctx context.Context, _ outbox.Envelope) (outbox.Result, error) {
				calls++
				require.Equal(t, "v", baggage.FromContext(ctx).Member("k").Value())
				return outbox.Done(), boom
			})).OnEvent(t.Context(), withHeaders(map[string]string{"traceparent": remoteParent, "baggage": "k=v"})[0])
			require.Equal(t, boom, err)
			require.Equal(t, 1, calls)
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

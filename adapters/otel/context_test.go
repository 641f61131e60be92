package outboxotel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestWithoutAnSDKThereIsNoSpanAndNoHeader(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]outboxotel.Option{
		"the global provider": {outboxotel.WithProducerSpan(), nil},
		"the no-op provider":  {outboxotel.WithTracerProvider(noop.NewTracerProvider()), outboxotel.WithProducerSpan()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			delivered := make(chan trace.SpanContext, 1)
			a := run(t, openDB(t).DB, traced(opts...), on(func(ctx context.Context, env outbox.Envelope) error {
				if env.Headers != nil {
					return fmt.Errorf("headers: %v", env.Headers)
				}
				delivered <- trace.SpanContextFromContext(ctx)
				return nil
			}))
			id := a.write(t.Context(), t, event())[0]
			require.False(t, (<-delivered).IsValid())
			require.Empty(t, a.headers(t, id))
		})
	}
}

// A process without an SDK between two that have one does not break the trace.
func TestAContextPassesThroughAProcessThatDoesNotTrace(t *testing.T) {
	t.Parallel()
	relay := outboxotel.Interceptor(outboxotel.WithTracerProvider(noop.NewTracerProvider()), outboxotel.WithChildOf())(
		outbox.ListenerFunc(func(ctx context.Context, _ outbox.Envelope) error {
			require.Equal(t, remoteParent, before(ctx, t, withHeaders(nil))[0].Headers["traceparent"])
			return nil
		}))
	err := relay.OnEvent(t.Context(), before(remoteContext(t), t, withHeaders(nil))[0])
	require.NoError(t, err)
}

func TestAnInterceptorFurtherOutIsTheParent(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	ctx, outer := spans.start(t.Context(), "outer")
	defer outer.End()
	deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(outbox.ListenerFunc(succeed))

	err := deliver.OnEvent(ctx, before(remoteContext(t), t, withHeaders(nil))[0])
	require.NoError(t, err)
	span := spans.wait(t, deliverPlaced, 1)[0]
	require.Equal(t, outer.SpanContext().SpanID(), span.Parent.SpanID())
	require.Len(t, span.Links, 1)
	require.Equal(t, trace.SpanID{2}, span.Links[0].SpanContext.SpanID())
	require.Equal(t, "vendor=1", span.Links[0].SpanContext.TraceState().String())

	err = deliver.OnEvent(ctx, event()) // written without a trace
	require.NoError(t, err)
	span = spans.wait(t, deliverPlaced, 2)[1]
	require.Equal(t, outer.SpanContext().SpanID(), span.Parent.SpanID())
	require.Empty(t, span.Links, "a span is not linked to its own parent")
}

func TestHeadersThatAreNoTraceContextAreIgnored(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(outbox.ListenerFunc(succeed))
	malformed := []string{"", "x", "00-0-0-0", remoteParent + "x", "ff" + remoteParent[2:], strings.ToUpper(remoteParent) + "!"}
	for _, parent := range malformed {
		err := deliver.OnEvent(t.Context(), withHeaders(map[string]string{"traceparent": parent, "tracestate": "=", "baggage": ";;"})[0])
		require.NoError(t, err)
	}
	for _, span := range spans.wait(t, deliverPlaced, len(malformed)) {
		require.False(t, span.Parent.IsValid())
		require.Empty(t, span.Links)
	}
}

// sampler drops the spans of one destination, by their attributes at the start.
type sampler struct{ drop string }

func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	decision := sdktrace.RecordAndSample
	for _, kv := range p.Attributes {
		if kv.Key == "messaging.destination.name" && kv.Value.AsString() == s.drop {
			decision = sdktrace.Drop
		}
	}
	return sdktrace.SamplingResult{Decision: decision}
}

func (sampler) Description() string { return "by destination" }

func TestSamplersSeeWhatIsDelivered(t *testing.T) {
	t.Parallel()
	spans := newRecording(t, sdktrace.WithSampler(sampler{drop: "order/order.viewed"}))
	deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(outbox.ListenerFunc(succeed))
	viewed := event()
	viewed.EventType = "order.viewed"
	for _, env := range []outbox.Envelope{viewed, event()} {
		err := deliver.OnEvent(t.Context(), env)
		require.NoError(t, err)
	}
	spans.wait(t, deliverPlaced, 1)
	require.Len(t, spans.exporter.GetSpans(), 1)
}

func TestChildrenFollowTheProducersSamplingAndLinksDoNot(t *testing.T) {
	t.Parallel()
	spans := newRecording(t, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	unsampled := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	env := before(unsampled, t, withHeaders(nil))[0]
	child := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans), outboxotel.WithChildOf())(outbox.ListenerFunc(succeed))
	err := child.OnEvent(t.Context(), env)
	require.NoError(t, err)
	require.Empty(t, spans.exporter.GetSpans())

	linked := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(outbox.ListenerFunc(succeed))
	err = linked.OnEvent(t.Context(), env)
	require.NoError(t, err)
	require.Len(t, spans.wait(t, deliverPlaced, 1)[0].Links, 1)
}

func TestPayloadHeadersAndTenantStayOutOfTraces(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans), outboxotel.WithProducerSpan()), on(succeed))
	env := event()
	env.Headers = map[string]string{"authorization": "hunter2"}
	a.write(t.Context(), t, env)
	spans.wait(t, deliverPlaced, 1)
	shown := fmt.Sprintf("%+v", spans.exporter.GetSpans())
	for _, secret := range []string{"hunter2", "authorization", "acme", "payload"} {
		require.NotContains(t, shown, secret)
	}
}

func TestEventTypesMadeAtRunTimeHaveTheirOwnSpans(t *testing.T) {
	t.Parallel()
	const made = 1100 // more than the limit
	spans := newRecording(t)
	deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(outbox.ListenerFunc(succeed))
	for range 2 {
		for i := range made {
			env := event()
			env.EventType = outbox.EventType(fmt.Sprint("made.", i))
			err := deliver.OnEvent(t.Context(), env)
			require.NoError(t, err)
		}
	}
	all := spans.exporter.GetSpans()
	require.Len(t, all, 2*made)
	for i, span := range all {
		typ := fmt.Sprint("made.", i%made)
		require.Equal(t, "deliver order/"+typ, span.Name)
		require.Equal(t, typ, value(span, "outbox.event.type"))
		require.Equal(t, "order/"+typ, value(span, "messaging.destination.name"))
	}
}

func TestManyWritersAndDeliveriesAtOnce(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 10
	spans := newRecording(t)
	cfg := traced(outboxotel.WithTracerProvider(spans), outboxotel.WithProducerSpan())
	var mu sync.Mutex
	listeners := map[string]trace.SpanContext{} // by the event that it handled
	a := run(t, openDB(t).DB, cfg, on(func(ctx context.Context, env outbox.Envelope) error {
		mu.Lock()
		defer mu.Unlock()
		listeners[env.AggregateID] = trace.SpanContextFromContext(ctx)
		return nil
	}))
	requests := make([]trace.SpanContext, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			ctx, request := spans.start(t.Context(), "POST /orders")
			defer request.End()
			requests[w] = request.SpanContext()
			for i := range each {
				env := event()
				env.AggregateID = fmt.Sprintf("%d/%d", w, i)
				a.write(ctx, t, env)
			}
		})
	}
	wg.Wait()

	deliveries := spans.wait(t, deliverPlaced, writers*each)
	mu.Lock()
	defer mu.Unlock()
	for _, span := range deliveries {
		id, _ := value(span, "outbox.aggregate.id").(string)
		var w, i int
		_, err := fmt.Sscanf(id, "%d/%d", &w, &i)
		require.NoError(t, err)
		require.Equal(t, requests[w].TraceID(), span.Links[0].SpanContext.TraceID(), id)
		require.Equal(t, listeners[id], span.SpanContext, id)
	}
}

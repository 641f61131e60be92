package outboxotel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

// nowhere is a processor that does nothing with a recorded span.
type nowhere struct{}

func (nowhere) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nowhere) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (nowhere) Shutdown(context.Context) error                  { return nil }
func (nowhere) ForceFlush(context.Context) error                { return nil }

// setups are the ways in which tracing can be on or off.
func setups() []struct {
	name     string
	provider trace.TracerProvider
} {
	sdk := func(s sdktrace.Sampler) trace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(s), sdktrace.WithSpanProcessor(nowhere{}))
	}
	return []struct {
		name     string
		provider trace.TracerProvider
	}{
		{"not configured", nil},
		{"no-op", noop.NewTracerProvider()},
		{"not sampled", sdk(sdktrace.NeverSample())},
		{"sampled", sdk(sdktrace.AlwaysSample())},
	}
}

// BenchmarkWrite measures the hook's share of writing one event.
func BenchmarkWrite(b *testing.B) {
	for _, s := range setups() {
		b.Run(s.name, func(b *testing.B) { benchmarkWrite(b, s.provider) })
		b.Run(s.name+" with a span", func(b *testing.B) { benchmarkWrite(b, s.provider, outboxotel.WithProducerSpan()) })
	}
}

func benchmarkWrite(b *testing.B, p trace.TracerProvider, opts ...outboxotel.Option) {
	ctx := context.Background()
	if p != nil {
		opts = append(opts, outboxotel.WithTracerProvider(p))
		var span trace.Span
		ctx, span = p.Tracer("bench").Start(ctx, "POST /orders")
		defer span.End()
	}
	hook := outboxotel.Hook(opts...)
	envs := []outbox.Envelope{event()}
	b.ReportAllocs()
	for b.Loop() {
		envs[0].Headers = nil
		if _, err := hook.BeforeWrite(ctx, envs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDelivery measures the interceptor's share of delivering one event.
func BenchmarkDelivery(b *testing.B) {
	untraced := event()
	written := event()
	written.Headers = map[string]string{"traceparent": remoteParent}
	for _, s := range setups() {
		b.Run(s.name, func(b *testing.B) {
			env := written
			if s.provider == nil {
				env = untraced
			}
			var opts []outboxotel.Option
			if s.provider != nil {
				opts = append(opts, outboxotel.WithTracerProvider(s.provider))
			}
			deliver := outboxotel.Interceptor(opts...)(outbox.ListenerFunc(succeed))
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := deliver.OnEvent(ctx, env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSDK measures the SDK alone, with a span like a delivery's: as many
// attributes, half of them from the start, and a link.
func BenchmarkSDK(b *testing.B) {
	producer := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	var attrs []attribute.KeyValue
	for i := range 8 {
		attrs = append(attrs, attribute.String(fmt.Sprint("messaging.attribute.", i), "order.placed"))
	}
	for _, s := range setups()[1:] {
		b.Run(s.name, func(b *testing.B) {
			tracer := s.provider.Tracer("bench")
			ctx := context.Background()
			kind, begin := trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs[:4]...)
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.Start(ctx, "deliver", kind, begin, trace.WithLinks(trace.Link{SpanContext: producer}))
				if span.IsRecording() {
					span.SetAttributes(attrs[4:]...)
				}
				span.End()
			}
		})
	}
}

// BenchmarkMetrics measures the metrics of one event on the hot path.
func BenchmarkMetrics(b *testing.B) {
	for name, opts := range map[string][]outboxotel.MetricsOption{
		"not configured": nil,
		"plain":          {outboxotel.WithMeterProvider(newMeters(b))},
		"by kind":        {outboxotel.WithMeterProvider(newMeters(b)), outboxotel.WithEventKinds(100)},
	} {
		b.Run(name, func(b *testing.B) {
			m, err := outboxotel.NewMetrics(opts...)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				hotEvent(m)
			}
		})
	}
}

func hotEvent(m *outboxotel.Metrics) {
	m.HotEnqueued(kind)
	m.ListenerRan(kind, time.Millisecond)
	m.Delivered(kind, time.Millisecond)
	m.QueueDepths(1, 0)
}

func TestCountingAllocatesNothing(t *testing.T) { // not parallel: allocations are counted per process
	for _, opts := range [][]outboxotel.MetricsOption{nil, {outboxotel.WithEventKinds(1)}} {
		m, err := outboxotel.NewMetrics(append(opts, outboxotel.WithMeterProvider(newMeters(t)))...)
		require.NoError(t, err)
		hotEvent(m)
		require.Zero(t, testing.AllocsPerRun(100, func() { hotEvent(m) }))
		require.NoError(t, m.Close())
	}
}

package outboxotel

import (
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"
	"go.opentelemetry.io/otel/trace"
)

// scopeName is the instrumentation scope of all spans and metrics.
const scopeName = "github.com/outboxkit/outbox-go/adapters/otel"

// Option changes the tracing of [Hook] and [Interceptor]. Give both the same options; each ignores
// the options of the other. A nil option is skipped.
type Option func(*tracing)

// tracing is the configuration of a hook or an interceptor.
type tracing struct {
	provider     trace.TracerProvider
	propagator   propagation.TextMapPropagator
	childOf      bool
	producerSpan bool

	tracer     trace.Tracer
	writing    *operation
	delivering *operation
	own        map[string]bool // the headers that the propagator writes
	w3c        bool            // the propagator is the default
	reported   sync.Once       // see report
}

// WithTracerProvider sets the provider of the spans. Defaults to the global
// provider, which may be set later.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(t *tracing) { t.provider = p }
}

// WithPropagator sets the format of the trace context in the headers. Writers and listeners must
// agree on the format. Defaults to W3C Trace Context and Baggage, not to the global propagator,
// which does nothing by default.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(t *tracing) { t.propagator = p }
}

// WithChildOf makes a delivery's span a child of the producer's, in the same trace. Defaults to a
// separate trace with a link; the package documentation compares the two. WithChildOf affects the
// interceptor.
func WithChildOf() Option { return func(t *tracing) { t.childOf = true } }

// WithProducerSpan makes a span for each write, also of a batch, and puts the context of this span
// into the headers instead of the context of the active span. The span is a point in time, not the
// INSERT's duration: a hook runs when a write begins, but not when the write fails.
// WithProducerSpan affects the hook.
func WithProducerSpan() Option { return func(t *tracing) { t.producerSpan = true } }

func newTracing(opts []Option) *tracing {
	t := &tracing{
		writing:    newOperation("write", trace.SpanKindProducer, semconv.MessagingOperationTypeSend),
		delivering: newOperation("deliver", trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess),
	}
	for _, opt := range opts {
		if opt != nil {
			opt(t)
		}
	}
	if t.provider == nil {
		t.provider = otel.GetTracerProvider()
	}
	if t.propagator == nil {
		t.w3c = true
		t.propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	t.tracer = t.provider.Tracer(scopeName, trace.WithSchemaURL(semconv.SchemaURL))
	t.own = map[string]bool{}
	for _, key := range t.propagator.Fields() {
		t.own[key] = true
	}
	return t
}

package outboxotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/outboxkit/outbox-go/outbox"
)

// shield is deferred around calls of the user's propagators, samplers and
// processors. Tracing must not affect a write or a delivery: a panic would abort
// the write, or fail a delivery that has succeeded.
func (t *tracing) shield(doing string) {
	if r := recover(); r != nil {
		t.report(fmt.Errorf("outboxotel: %s: %s", doing, (&outbox.PanicError{Value: r}).Error()))
	}
}

// start starts a span. If the tracer panics, there is no span, and the context is unchanged.
func (t *tracing) start(ctx context.Context, name string, opts ...trace.SpanStartOption) (started context.Context, span trace.Span, recording bool) {
	started, span = ctx, noop.Span{}
	defer t.shield("starting a span")
	begun, s := t.tracer.Start(ctx, name, opts...)
	return begun, s, s.IsRecording()
}

// startEvent starts the span of an operation on an event, with a link to the producer's span if
// producer is valid.
func (t *tracing) startEvent(ctx context.Context, op *operation, env *outbox.Envelope, producer trace.SpanContext) (started context.Context, span trace.Span, recording bool) {
	kind := op.of(env)
	opts := append(make([]trace.SpanStartOption, 0, 3), op.kind, kind.start)
	if producer.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: producer}))
	}
	started, span, recording = t.start(ctx, kind.name, opts...)
	if recording {
		defer t.shield("setting the attributes of a span")
		span.SetAttributes(kind.event(env)...)
	}
	return started, span, recording
}

func (t *tracing) end(span trace.Span) {
	defer t.shield("ending a span")
	span.End()
}

// report passes the error to OpenTelemetry's error handler, once: such an error repeats with every
// event.
func (t *tracing) report(err error) {
	t.reported.Do(func() { otel.Handle(fmt.Errorf("%w (this is reported once)", err)) })
}

package outboxotel

import (
	"context"
	"slices"

	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/outbox"
)

// Hook puts the context of the active span, with the baggage, into the headers of written events,
// for [Interceptor]. Without an active span, Hook adds nothing. Hook replaces the propagator's
// headers that an event already has, for example copied from another event, and no other headers.
// Give Hook last, so that it sees the changes of other hooks.
//
// Tracing never fails a write. A trace context that is not valid as headers, or is longer than 16
// KiB, is left out; OpenTelemetry's error handler gets the first such error.
func Hook(opts ...Option) outbox.WriterHook {
	t := newTracing(opts)
	return outbox.WriterHook{BeforeWrite: t.beforeWrite}
}

func (t *tracing) beforeWrite(ctx context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
	if t.producerSpan {
		var span trace.Span
		ctx, span = t.startWrite(ctx, envs)
		defer t.end(span)
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return envs, nil
	}
	injected := t.inject(ctx)
	for i := range envs {
		envs[i].Headers = t.merge(envs[i].Headers, injected)
	}
	return envs, nil
}

// startWrite starts the span of a write. A batch of several kinds has no single
// destination.
func (t *tracing) startWrite(ctx context.Context, envs []outbox.Envelope) (started context.Context, span trace.Span) {
	if len(envs) == 1 {
		started, span, _ = t.startEvent(ctx, t.writing, &envs[0], trace.SpanContext{})
		return started, span
	}
	name, attributes := t.writing.name, t.writing.attributes
	if sameKind(envs) {
		kind := t.writing.of(&envs[0])
		name, attributes = kind.name, kind.attributes
	}
	started, span, _ = t.start(ctx, name, t.writing.kind,
		trace.WithAttributes(append(slices.Clip(attributes), semconv.MessagingBatchMessageCount(len(envs)))...))
	return started, span
}

func sameKind(envs []outbox.Envelope) bool {
	for i := range envs {
		if envs[i].AggregateType != envs[0].AggregateType || envs[i].EventType != envs[0].EventType {
			return false
		}
	}
	return len(envs) > 0
}

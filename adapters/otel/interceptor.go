package outboxotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/outbox"
)

// Interceptor creates a span for each attempt to deliver an event, linked to the span that wrote
// the event. The listener's context has the span and the baggage of the write. Give Interceptor
// first, so that the span includes the other interceptors.
func Interceptor(opts ...Option) outbox.Interceptor {
	t := newTracing(opts)
	return func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
			return t.deliver(ctx, &env, next)
		})
	}
}

func (t *tracing) deliver(ctx context.Context, env *outbox.Envelope, next outbox.Listener) (err error) {
	ctx, producer := t.extract(ctx, env.Headers)
	ctx, span, recording := t.startEvent(ctx, t.delivering, env, producer)
	defer t.end(span)
	if !recording {
		return next.OnEvent(ctx, *env)
	}
	if listener := outbox.ListenerOf(ctx); listener != "" {
		span.SetAttributes(listenerKey.String(text(listener)))
	}
	err = errGoexit // unless the listener returns; the engine turns a panic into an error
	defer func() { t.describe(ctx, span, env, err) }()
	return next.OnEvent(ctx, *env)
}

var errGoexit = errors.New("the listener ended its goroutine")

// describe records the outcome on the span.
func (t *tracing) describe(ctx context.Context, span trace.Span, env *outbox.Envelope, err error) {
	defer t.shield("describing a delivery")
	outcome := outbox.OutcomeOf(ctx, *env, err)
	if outcome == outbox.OutcomeDone {
		return
	}
	span.SetAttributes(outcomeKey.String(outcome.String()))
	if !failed(err) {
		return
	}
	if outcome == outbox.OutcomeRetry || outcome == outbox.OutcomeDead || outcome == outbox.OutcomeSplit {
		span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
		span.SetStatus(codes.Error, text(err.Error()))
	}
	recordError(span, err)
}

// recordError adds the conventions' event for errors. RecordError is not enough: it lacks the stack
// of a recovered panic, and a single string that is not UTF-8 makes exporters drop a whole batch.
func recordError(span trace.Span, err error) {
	attrs := []attribute.KeyValue{
		semconv.ExceptionType(fmt.Sprintf("%T", err)),
		semconv.ExceptionMessage(text(err.Error())),
	}
	var panicked *outbox.PanicError
	if errors.As(err, &panicked) {
		attrs = append(attrs, semconv.ExceptionStacktrace(text(string(panicked.Stack))))
	}
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(attrs...))
}

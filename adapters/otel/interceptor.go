package outboxotel

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/outbox"
)

// Interceptor makes a span of each delivery, each attempt its own, linked to the
// span that wrote the event, and hands the listener a context with the span and
// with the baggage of the write. Give it first, so that the span holds the other
// interceptors too.
func Interceptor(opts ...Option) outbox.Interceptor {
	t := newTracing(opts)
	return func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
			return t.deliver(ctx, &env, next)
		})
	}
}

func (t *tracing) deliver(ctx context.Context, env *outbox.Envelope, next outbox.Listener) (res outbox.Result, err error) {
	ctx, span := t.startDelivery(ctx, env)
	if !span.IsRecording() {
		defer t.end(span)
		return next.OnEvent(ctx, *env)
	}
	returned := false
	defer func() {
		if returned {
			t.finish(ctx, span, env, res, err)
			return
		}
		// The engine turns a panic into an error before it gets here; this is
		// for chains that somebody built by hand, and for runtime.Goexit.
		r := recover()
		if r == nil {
			t.finish(ctx, span, env, res, errGoexit)
			return
		}
		t.finish(ctx, span, env, res, &outbox.PanicError{Value: r, Stack: debug.Stack()})
		panic(r)
	}()
	res, err = next.OnEvent(ctx, *env)
	returned = true
	return res, err
}

var errGoexit = errors.New("the listener ended its goroutine")

// startDelivery starts the span. The parent is the one that ctx carries, if any:
// the producer's span is only when that was asked for.
func (t *tracing) startDelivery(ctx context.Context, env *outbox.Envelope) (started context.Context, span trace.Span) {
	started, span = ctx, nowhere
	defer t.shield("starting a span")
	local := trace.SpanFromContext(ctx)
	ctx = t.extract(ctx, env.Headers)
	producer := trace.SpanContextFromContext(ctx)
	found := producer.IsValid() && !producer.Equal(local.SpanContext())

	op := t.delivering
	kind := op.of(env)
	attributes := kind.attempt(env.Attempts + 1)
	if !found || t.childOf {
		return t.tracer.Start(ctx, kind.name, op.kind, attributes)
	}
	return t.tracer.Start(trace.ContextWithSpan(ctx, local), kind.name, op.kind, attributes,
		trace.WithLinks(trace.Link{SpanContext: producer}))
}

// finish says on the span which event it was and what became of the delivery,
// and ends it. What samplers decide by was there from the beginning.
func (t *tracing) finish(ctx context.Context, span trace.Span, env *outbox.Envelope, res outbox.Result, err error) {
	defer t.shield("ending a span")
	outcome := t.rules.outcome(ctx, env.Attempts, res, err)
	attrs := append(eventAttributes(env), outcomeKey.String(outcome))
	if outcome == outcomeRetry || outcome == outcomeDead {
		typ, description := failure(res, err)
		attrs = append(attrs, semconv.ErrorTypeKey.String(typ))
		span.SetStatus(codes.Error, description)
	}
	span.SetAttributes(attrs...)
	if err != nil {
		recordError(span, err)
	}
	span.End()
}

// recordError adds the event that the conventions have for errors. It is not
// left to RecordError, which knows neither the stack of a panic that is over nor
// that one string that is no UTF-8 makes exporters drop a whole batch.
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

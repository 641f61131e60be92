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

// Interceptor creates a span for each attempt to deliver an event, linked to the
// span that wrote it. The listener's context has the span and the baggage of the
// write. Give it first, so that the span includes the other interceptors.
func Interceptor(opts ...Option) outbox.Interceptor {
	t := newTracing(opts)
	return func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
			return t.deliver(ctx, &env, next)
		})
	}
}

func (t *tracing) deliver(ctx context.Context, env *outbox.Envelope, next outbox.Listener) (res outbox.Result, err error) {
	ctx, span, recording := t.startDelivery(ctx, env)
	if !recording {
		defer t.end(span)
		return next.OnEvent(ctx, *env)
	}
	returned := false
	defer func() {
		if returned {
			t.finish(ctx, span, env, res, err)
			return
		}
		// The engine turns a panic into an error before it gets here; this handles
		// chains built by hand, and runtime.Goexit.
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

// startDelivery starts the span. The parent is the span in ctx, if any; that is
// the producer's only with WithChildOf.
func (t *tracing) startDelivery(ctx context.Context, env *outbox.Envelope) (started context.Context, span trace.Span, recording bool) {
	ctx, producer := t.extract(ctx, env.Headers)
	op := t.delivering
	kind := op.of(env)
	if producer.IsValid() {
		started, span, recording = t.start(ctx, kind.name, op.kind, kind.start, trace.WithLinks(trace.Link{SpanContext: producer}))
	} else {
		started, span, recording = t.start(ctx, kind.name, op.kind, kind.start)
	}
	if recording {
		t.set(span, kind.event(env))
	}
	return started, span, recording
}

// finish records the outcome on the span and ends it.
func (t *tracing) finish(ctx context.Context, span trace.Span, env *outbox.Envelope, res outbox.Result, err error) {
	t.describe(ctx, span, env, res, err)
	t.end(span)
}

func (t *tracing) describe(ctx context.Context, span trace.Span, env *outbox.Envelope, res outbox.Result, err error) {
	defer t.shield("describing a delivery")
	err = sound(err)
	verdict := outbox.OutcomeOf(ctx, *env, res, err)
	if verdict == outbox.OutcomeDone {
		return
	}
	outcome := outcomeKey.String(verdict.String())
	if verdict == outbox.OutcomeRetry || verdict == outbox.OutcomeDead {
		typ, description := failure(res, err)
		span.SetAttributes(outcome, semconv.ErrorTypeKey.String(typ))
		span.SetStatus(codes.Error, description)
	} else {
		span.SetAttributes(outcome)
	}
	if err != nil {
		recordError(span, err)
	}
}

// recordError adds the conventions' event for errors. RecordError would not do: it
// lacks the stack of a recovered panic, and one string that is not UTF-8 makes
// exporters drop a whole batch.
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

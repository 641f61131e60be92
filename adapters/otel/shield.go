package outboxotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/outboxkit/outbox-go/outbox"
)

// nowhere is the span where none could be made.
var nowhere trace.Span = noop.Span{}

// shield is deferred around what calls propagators, samplers and processors of
// the user's. Watching a write or a delivery must not decide about it: a panic
// there would abort the write, or fail a delivery that has succeeded.
func (t *tracing) shield(doing string) {
	if r := recover(); r != nil {
		t.report(fmt.Errorf("outboxotel: %s: %s", doing, (&outbox.PanicError{Value: r}).Error()))
	}
}

// start starts a span. From a tracer that panics, or that gives nothing, there is
// none, and the context stays what it is.
func (t *tracing) start(ctx context.Context, name string, opts ...trace.SpanStartOption) (started context.Context, span trace.Span, recording bool) {
	started, span = ctx, nowhere
	defer t.shield("starting a span")
	begun, s := t.tracer.Start(ctx, name, opts...)
	recording = s.IsRecording() // which panics when it is nil
	return begun, s, recording
}

func (t *tracing) set(span trace.Span, attributes []attribute.KeyValue) {
	defer t.shield("setting the attributes of a span")
	span.SetAttributes(attributes...)
}

func (t *tracing) end(span trace.Span) {
	defer t.shield("ending a span")
	span.End()
}

// active reports whether ctx has a span that others can be told of.
func (t *tracing) active(ctx context.Context) bool {
	defer t.shield("looking at the active span")
	return trace.SpanContextFromContext(ctx).IsValid()
}

// report tells OpenTelemetry's error handler, once: what goes wrong here goes
// wrong with every event.
func (t *tracing) report(err error) {
	t.reported.Do(func() { handle(fmt.Errorf("%w (this is reported once)", err)) })
}

// handle tells OpenTelemetry's error handler, which is the user's too.
func handle(err error) {
	defer func() { _ = recover() }() // there is nobody left to tell
	otel.Handle(err)
}

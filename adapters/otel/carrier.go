package outboxotel

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/outbox"
)

// maxInjected is how many bytes the injected headers may have in all. The W3C formats stay below
// this limit; the limit concerns other formats.
const maxInjected = 16 << 10

// inject returns the propagator's headers, or nil if the outbox would reject them. A single invalid
// header drops all headers, because a part of a trace context means something else than the whole.
func (t *tracing) inject(ctx context.Context) (injected map[string]string) {
	defer t.shield("injecting a trace context")
	headers := propagation.MapCarrier{}
	t.propagator.Inject(ctx, headers)
	for key, value := range headers {
		if key == "" || !clean(key) || !clean(value) {
			t.leftOut("the header %.64q cannot be stored", key)
			return nil
		}
	}
	if size := headersSize(headers); size > maxInjected {
		t.leftOut("it is %d bytes long; the limit is %d", size, maxInjected)
		return nil
	}
	return headers
}

func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func headersSize(headers map[string]string) (size int) {
	for key, value := range headers {
		size += len(key) + len(value)
	}
	return size
}

func (t *tracing) leftOut(format string, args ...any) {
	t.report(fmt.Errorf("outboxotel: a trace context was left out of an event's headers: "+format, args...))
}

// merge returns a copy of an event's headers with the injected headers, if these fit. Earlier
// headers of the propagator are dropped, even headers that the propagator does not write again: a
// tracestate belongs to the traceparent that it came with.
func (t *tracing) merge(headers, injected map[string]string) map[string]string {
	if len(headers)+len(injected) == 0 {
		return headers
	}
	merged := make(map[string]string, len(headers)+len(injected))
	for key, value := range headers {
		if !t.own[key] {
			merged[key] = value
		}
	}
	maps.Copy(merged, injected)
	if size := headersSize(merged); len(injected) > 0 && size > outbox.MaxHeadersBytes {
		t.leftOut("with it they are %d bytes long; the limit is %d", size, outbox.MaxHeadersBytes)
		return t.merge(headers, nil)
	}
	return merged
}

// extract returns the context of a delivery: ctx with the values of the headers. With WithChildOf
// these include the span that wrote the event. Without WithChildOf, extract returns that span
// separately, for a link, and the context keeps its own span.
func (t *tracing) extract(ctx context.Context, headers map[string]string) (extracted context.Context, producer trace.SpanContext) {
	extracted = ctx
	if len(headers) == 0 {
		return extracted, producer
	}
	defer t.shield("extracting a trace context")
	if t.w3c && !t.childOf {
		if sc, ok := fromTraceparent(headers); ok {
			return ctx, other(ctx, sc)
		}
	}
	remote := t.propagator.Extract(ctx, propagation.MapCarrier(headers))
	if t.childOf {
		return remote, producer
	}
	producer = other(ctx, trace.SpanContextFromContext(remote))
	return trace.ContextWithSpan(remote, trace.SpanFromContext(ctx)), producer
}

// other returns the span, unless the span is ctx's own: then the headers named no span, or an outer
// interceptor began it.
func other(ctx context.Context, sc trace.SpanContext) trace.SpanContext {
	if sc.Equal(trace.SpanContextFromContext(ctx)) {
		return trace.SpanContext{}
	}
	return sc
}

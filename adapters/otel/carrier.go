package outboxotel

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// maxInjected is how many bytes the injected headers may have in all. The W3C
// formats stay below it; the limit concerns other formats.
const maxInjected = 16 << 10

// header is a key and its value.
type header struct{ key, value string }

// injection is the carrier that a propagator writes into. One serves all events
// of a write, and is a slice because a map costs more than the few entries.
type injection []header

var _ propagation.TextMapCarrier = (*injection)(nil)

// Get is the value that was set, or empty.
func (in *injection) Get(key string) string {
	for _, h := range *in {
		if h.key == key {
			return h.value
		}
	}
	return ""
}

// Set keeps the value, in place of an earlier one.
func (in *injection) Set(key, value string) {
	for i, h := range *in {
		if h.key == key {
			(*in)[i].value = value
			return
		}
	}
	*in = append(*in, header{key, value})
}

// Keys are the keys that were set.
func (in *injection) Keys() []string {
	keys := make([]string, len(*in))
	for i, h := range *in {
		keys[i] = h.key
	}
	return keys
}

// check says why the outbox would reject these headers. One invalid header drops
// all, because part of a trace context means something else than the whole.
func (in injection) check() error {
	size := 0
	for _, h := range in {
		if h.key == "" || !clean(h.key) || !clean(h.value) {
			return fmt.Errorf("the header %.64q is none that can be stored", h.key)
		}
		size += len(h.key) + len(h.value)
	}
	if size > maxInjected {
		return fmt.Errorf("it is %d bytes long; the limit is %d", size, maxInjected)
	}
	return nil
}

func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// inject returns the propagator's headers, or none if the outbox would reject
// them.
func (t *tracing) inject(ctx context.Context) injection {
	defer t.shield("injecting a trace context")
	in := make(injection, 0, 3)
	t.propagator.Inject(ctx, &in)
	if err := in.check(); err != nil {
		t.report(fmt.Errorf("outboxotel: a trace context was left out of an event's headers: %w", err))
		return nil
	}
	return in
}

// withInjected is a copy of the headers with the trace context. Earlier headers of
// the propagator are dropped, even those that it does not write again: a
// tracestate belongs to its own traceparent.
func (t *tracing) withInjected(headers map[string]string, in injection) map[string]string {
	merged := make(map[string]string, len(headers)+len(in))
	for key, value := range headers {
		if !t.own[key] {
			merged[key] = value
		}
	}
	for _, h := range in {
		merged[h.key] = h.value
	}
	return merged
}

// carries reports whether headers hold a trace context.
func (t *tracing) carries(headers map[string]string) bool {
	for key := range headers {
		if t.own[key] {
			return true
		}
	}
	return false
}

// extract returns the context of a delivery: ctx with the values of the headers.
// With WithChildOf that includes the span that wrote the event; without, that span
// is returned separately, for a link, and the context keeps its own span.
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

// other is the span, unless it is ctx's own: then the headers named none, or an
// outer interceptor began it.
func other(ctx context.Context, sc trace.SpanContext) trace.SpanContext {
	if sc.Equal(trace.SpanContextFromContext(ctx)) {
		return trace.SpanContext{}
	}
	return sc
}

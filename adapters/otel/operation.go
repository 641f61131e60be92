package outboxotel

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/internal/bykind"
	"github.com/outboxkit/outbox-go/outbox"
)

// cachedKinds is how many kinds of events an operation caches the common parts of spans for. An
// application that makes more event types at run time has slightly slower spans.
const cachedKinds = 1000

// operation is writing or delivering. The name is the outbox's; the type and the span kind are the
// conventions'.
type operation struct {
	name       string
	kind       trace.SpanStartOption
	attributes []attribute.KeyValue
	kinds      *bykind.Map[outbox.EventKind, *kindOfSpan]
}

// kindOfSpan is the common part of the spans of an operation on a kind of event.
type kindOfSpan struct {
	name       string
	attributes []attribute.KeyValue  // of the messaging conventions
	start      trace.SpanStartOption // the same attributes
	types      [2]attribute.KeyValue // the outbox's
}

func newOperation(name string, kind trace.SpanKind, typ attribute.KeyValue) *operation {
	op := &operation{
		name: name, kind: trace.WithSpanKind(kind),
		attributes: []attribute.KeyValue{system, typ, semconv.MessagingOperationName(name)},
	}
	op.kinds = bykind.New(cachedKinds, op.kindOfSpan)
	return op
}

func (op *operation) of(env *outbox.Envelope) *kindOfSpan {
	kind := outbox.EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
	if k, ok := op.kinds.Of(kind); ok {
		return k
	}
	return op.kindOfSpan(kind)
}

func (op *operation) kindOfSpan(kind outbox.EventKind) *kindOfSpan {
	dest := text(destination(kind)) // another program's row may not be UTF-8
	k := &kindOfSpan{
		name:       op.name + " " + dest,
		attributes: append(slices.Clip(op.attributes), semconv.MessagingDestinationName(dest)),
		types: [2]attribute.KeyValue{
			aggregateTypeKey.String(text(string(kind.AggregateType))), eventTypeKey.String(text(string(kind.EventType))),
		},
	}
	k.start = trace.WithAttributes(k.attributes...)
	return k
}

// event returns the attributes of an event, for a span that is recorded. As in logs, the attributes
// have no payload, header or tenant. A first attempt has no attempt attribute: the SDK needs a
// third less time for eight attributes than for nine.
func (k *kindOfSpan) event(env *outbox.Envelope) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 4), k.types[0], k.types[1], semconv.MessagingMessageID(text(env.EventID)))
	if env.AggregateID != "" {
		attrs = append(attrs, aggregateIDKey.String(text(env.AggregateID)))
	}
	if env.Attempts > 0 {
		attrs = append(attrs, attemptKey.Int(env.Attempts+1))
	}
	return attrs
}

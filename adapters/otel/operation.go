package outboxotel

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/outbox"
)

// cachedKinds is for how many kinds of events an operation keeps what all their
// spans have in common. An application has fewer; one that makes event types at
// run time gets its spans a little slower.
const cachedKinds = 1000

// operation is writing or delivering. Its name is what the outbox calls it; its
// type and the span kind are the conventions'.
type operation struct {
	name       string
	kind       trace.SpanStartOption
	attributes []attribute.KeyValue
	kinds      bounded[*kindOfSpan]
}

// kindOfSpan is what the spans of one operation on one kind of event share.
type kindOfSpan struct {
	name       string
	attributes []attribute.KeyValue
	start      trace.SpanStartOption // the attributes
	first      trace.SpanStartOption // the attributes, of a first attempt
}

func newWriting() *operation {
	return newOperation("write", trace.SpanKindProducer, semconv.MessagingOperationTypeSend)
}

func newDelivering() *operation {
	return newOperation("deliver", trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess)
}

func newOperation(name string, kind trace.SpanKind, typ attribute.KeyValue) *operation {
	op := &operation{
		name: name, kind: trace.WithSpanKind(kind),
		attributes: []attribute.KeyValue{system, typ, semconv.MessagingOperationName(name)},
	}
	op.kinds.limit, op.kinds.make = cachedKinds, op.kindOfSpan
	return op
}

func (op *operation) of(env *outbox.Envelope) *kindOfSpan {
	kind := outbox.EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
	if k, ok := op.kinds.of(kind); ok {
		return k
	}
	return op.kindOfSpan(kind)
}

func (op *operation) kindOfSpan(kind outbox.EventKind) *kindOfSpan {
	dest := destination(kind)
	k := &kindOfSpan{
		name: op.name + " " + dest,
		attributes: append(slices.Clip(op.attributes), semconv.MessagingDestinationName(dest),
			aggregateTypeKey.String(string(kind.AggregateType)), eventTypeKey.String(string(kind.EventType))),
	}
	k.start = trace.WithAttributes(k.attributes...)
	k.first = k.ofAttempt(1)
	return k
}

// attempt are the attributes of a span of that attempt.
func (k *kindOfSpan) attempt(n int) trace.SpanStartOption {
	if n == 1 {
		return k.first
	}
	return k.ofAttempt(n)
}

func (k *kindOfSpan) ofAttempt(n int) trace.SpanStartOption {
	return trace.WithAttributes(append(slices.Clip(k.attributes), attemptKey.Int(n))...)
}

package outboxotel

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/outboxkit/outbox-go/outbox"
)

// The attributes that the semantic conventions have no name for.
const (
	aggregateTypeKey = attribute.Key("outbox.aggregate.type")
	aggregateIDKey   = attribute.Key("outbox.aggregate.id")
	eventTypeKey     = attribute.Key("outbox.event.type")
	attemptKey       = attribute.Key("outbox.attempt")
	outcomeKey       = attribute.Key("outbox.outcome")
)

// The operations, which span names begin with. They are called what the outbox
// calls them; the types are the conventions'.
const (
	opWrite   = "write"
	opDeliver = "deliver"
)

// system is the value of messaging.system. The conventions ask for the name of
// the messaging system as its users know it when they list none.
var system = semconv.MessagingSystemKey.String("outbox")

var (
	deliverAttributes = []attribute.KeyValue{system, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName(opDeliver)}
	writeAttributes   = []attribute.KeyValue{system, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName(opWrite)}
)

// destination is what finds an event's listener: its two types. The aggregate
// type that says nothing is left out.
func destination(aggregate outbox.AggregateType, event outbox.EventType) string {
	if aggregate == outbox.Global || aggregate == "" {
		return string(event)
	}
	return string(aggregate) + "/" + string(event)
}

// kindAttributes are those that every event of a kind has.
func kindAttributes(attrs []attribute.KeyValue, dest string, env *outbox.Envelope) []attribute.KeyValue {
	return append(attrs, semconv.MessagingDestinationName(dest),
		aggregateTypeKey.String(string(env.AggregateType)), eventTypeKey.String(string(env.EventType)))
}

// eventAttributes are those of one event. The payload, the headers and the
// tenant stay out of traces as they stay out of logs.
func eventAttributes(attrs []attribute.KeyValue, env *outbox.Envelope) []attribute.KeyValue {
	attrs = append(attrs, semconv.MessagingMessageID(env.EventID))
	if env.AggregateID != "" {
		attrs = append(attrs, aggregateIDKey.String(env.AggregateID))
	}
	return attrs
}

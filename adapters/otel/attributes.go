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

// system is the value of messaging.system. The conventions ask for the name of
// the messaging system as its users know it when they list none.
var system = semconv.MessagingSystemKey.String("outbox")

// destination is what finds an event's listener: its two types. The aggregate
// type that says nothing is left out.
func destination(kind outbox.EventKind) string {
	if kind.AggregateType == outbox.Global || kind.AggregateType == "" {
		return string(kind.EventType)
	}
	return string(kind.AggregateType) + "/" + string(kind.EventType)
}

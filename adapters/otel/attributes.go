package outboxotel

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"

	"github.com/outboxkit/outbox-go/outbox"
)

// The attributes for which the semantic conventions have no name.
const (
	aggregateTypeKey = attribute.Key("outbox.aggregate.type")
	aggregateIDKey   = attribute.Key("outbox.aggregate.id")
	eventTypeKey     = attribute.Key("outbox.event.type")
	attemptKey       = attribute.Key("outbox.attempt")
	outcomeKey       = attribute.Key("outbox.outcome")
	listenerKey      = attribute.Key("outbox.listener")
)

// system is the value of messaging.system. For a system that the conventions do not list, the
// conventions ask for the usual name of the system.
var system = semconv.MessagingSystemKey.String("outbox")

// destination returns the pair of types that selects an event's listener. An empty aggregate type
// is left out.
func destination(kind outbox.EventKind) string {
	if kind.AggregateType == outbox.Global || kind.AggregateType == "" {
		return string(kind.EventType)
	}
	return string(kind.AggregateType) + "/" + string(kind.EventType)
}

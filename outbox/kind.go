package outbox

import "fmt"

// EventKind is a pair of types: what listeners, limits, pauses and metrics
// distinguish events by.
type EventKind struct {
	AggregateType AggregateType
	EventType     EventType
	// Listener is set only in what [Metrics] gets about the row of one of an event's
	// several listeners; see [Named].
	Listener string
}

// String is the aggregate type and the event type, with a slash between them.
func (k EventKind) String() string { return fmt.Sprintf("%s/%s", k.AggregateType, k.EventType) }

func (k EventKind) orGlobal() EventKind {
	k.AggregateType = orGlobal(k.AggregateType)
	return k
}

func (k EventKind) validate(v *validator) {
	v.text("AggregateType", string(k.AggregateType), MaxAggregateTypeLength)
	v.text("EventType", string(k.EventType), MaxEventTypeLength)
	if k.EventType == "" {
		v.add("EventType", "is required")
	}
	if k.Listener != "" {
		v.add("Listener", fmt.Sprintf("is %q; leave it empty: limits and pauses are for all listeners of a kind", k.Listener))
	}
}

func kindOf(env *Envelope) EventKind {
	return EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
}

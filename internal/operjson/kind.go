package operjson

import "github.com/outboxkit/outbox-go/outbox"

// Kind is an [outbox.EventKind].
type Kind struct {
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
}

// Kinds are the kinds of a list. Nil stays nil, which is not an empty list.
func Kinds(list []outbox.EventKind) (kinds []Kind) {
	if list != nil {
		kinds = make([]Kind, len(list))
	}
	for i, k := range list {
		kinds[i] = Kind{k.EventType, k.AggregateType}
	}
	return kinds
}

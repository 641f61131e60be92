package outboxotel

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/internal/bykind"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	// otherKind is the conventions' name for values beyond a limit.
	otherKind = "_OTHER"
	// unknownKind stands for undecodable rows, which have no types.
	unknownKind = "unknown"
)

// labels are the attributes of a metric, made once: the API takes options in slices, and making the
// slices for each event would cost more than counting the event.
type labels struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func newLabels(attributes []attribute.KeyValue) *labels {
	if len(attributes) == 0 {
		return &labels{}
	}
	option := metric.WithAttributeSet(attribute.NewSet(slices.Clone(attributes)...))
	return &labels{
		add:     []metric.AddOption{option},
		record:  []metric.RecordOption{option},
		observe: []metric.ObserveOption{option},
	}
}

// kinds are the labels of the kinds of events.
type kinds struct {
	common  []attribute.KeyValue
	plain   *labels
	other   *labels
	unknown *labels
	known   *bykind.Map[outbox.EventKind, *labels] // nil: kinds are not distinguished
}

// newKinds makes the labels. made is called with the labels of each kind that has separate labels,
// possibly while other goroutines get their labels.
func newKinds(common []attribute.KeyValue, limit int, made func(*labels)) *kinds {
	k := &kinds{common: common, plain: newLabels(common)}
	if limit == 0 {
		return k
	}
	of := func(kind outbox.EventKind) *labels { return newLabels(k.attributes(kind)) }
	k.known = bykind.New(limit, func(kind outbox.EventKind) *labels {
		l := of(kind)
		made(l)
		return l
	})
	k.other = of(outbox.EventKind{AggregateType: otherKind, EventType: otherKind})
	k.unknown = of(outbox.EventKind{AggregateType: unknownKind, EventType: unknownKind})
	return k
}

// attributes are those of a kind.
func (k *kinds) attributes(kind outbox.EventKind) []attribute.KeyValue {
	attributes := append(slices.Clip(k.common),
		aggregateTypeKey.String(text(string(kind.AggregateType))), eventTypeKey.String(text(string(kind.EventType))))
	if kind.Listener != "" {
		attributes = append(attributes, listenerKey.String(text(kind.Listener)))
	}
	return attributes
}

func (k *kinds) of(kind outbox.EventKind) *labels {
	if k.known == nil {
		return k.plain
	}
	if kind == (outbox.EventKind{}) {
		return k.unknown
	}
	if l, ok := k.known.Of(kind); ok {
		return l
	}
	return k.other
}

package outboxotel

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/outbox"
)

// otherKind is what the conventions call what a bound has no room for.
const otherKind = "_OTHER"

// labels are the attributes of a figure, made once: the API takes options in
// slices, and making them anew would cost each event more than its figures.
type labels struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func newLabels(attributes []attribute.KeyValue) *labels {
	if len(attributes) == 0 {
		return &labels{}
	}
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return &labels{
		add:     []metric.AddOption{option},
		record:  []metric.RecordOption{option},
		observe: []metric.ObserveOption{option},
	}
}

// kinds are the labels of the kinds of events, as many as the bound allows. The
// map is replaced, never changed, so that reading it takes no lock.
type kinds struct {
	common []attribute.KeyValue
	limit  int // zero: kinds are not told apart
	plain  *labels
	other  *labels

	known atomic.Pointer[map[outbox.EventKind]*labels]
	mu    sync.Mutex // held while known is replaced
}

func newKinds(common []attribute.KeyValue, limit int) *kinds {
	k := &kinds{common: slices.Clone(common), limit: limit, plain: newLabels(common)}
	k.other = k.make(outbox.EventKind{AggregateType: otherKind, EventType: otherKind})
	k.known.Store(&map[outbox.EventKind]*labels{})
	return k
}

func (k *kinds) make(kind outbox.EventKind) *labels {
	return newLabels(append(slices.Clip(k.common),
		aggregateTypeKey.String(string(kind.AggregateType)), eventTypeKey.String(string(kind.EventType))))
}

func (k *kinds) of(kind outbox.EventKind) *labels {
	if k.limit == 0 {
		return k.plain
	}
	known := *k.known.Load()
	if l, ok := known[kind]; ok {
		return l
	}
	if len(known) >= k.limit {
		return k.other
	}
	return k.add(kind)
}

func (k *kinds) add(kind outbox.EventKind) *labels {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := *k.known.Load()
	if l, ok := known[kind]; ok {
		return l
	}
	if len(known) >= k.limit {
		return k.other
	}
	l := k.make(kind)
	grown := maps.Clone(known)
	grown[kind] = l
	k.known.Store(&grown)
	return l
}

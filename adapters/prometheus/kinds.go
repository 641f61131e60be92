package outboxprom

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

// kinds finds the series of an event's types. Types up to the limit get their own,
// so that types from outside cannot fill the memory of this process and of
// Prometheus. Finding one takes no lock: a new kind replaces the map, until the
// limit is reached.
type kinds struct {
	vectors *vectors
	limit   int

	known atomic.Pointer[map[outbox.EventKind]*series]
	other atomic.Pointer[series]
	mu    sync.Mutex // held while a series is added
}

func newKinds(v *vectors, limit int) *kinds {
	k := &kinds{vectors: v, limit: limit}
	k.known.Store(&map[outbox.EventKind]*series{})
	return k
}

func (k *kinds) of(kind outbox.EventKind) *series {
	known := *k.known.Load()
	if s := known[kind]; s != nil {
		return s
	}
	if len(known) >= k.limit && kind != (outbox.EventKind{}) {
		if s := k.other.Load(); s != nil {
			return s
		}
	}
	return k.add(kind)
}

func (k *kinds) add(kind outbox.EventKind) *series {
	k.mu.Lock()
	defer k.mu.Unlock()
	if kind == (outbox.EventKind{}) { // rare: undecodable rows
		return k.vectors.series(UnknownKind, UnknownKind)
	}
	known := *k.known.Load()
	if s := known[kind]; s != nil {
		return s
	}
	if len(known) >= k.limit {
		if s := k.other.Load(); s != nil {
			return s
		}
		s := k.vectors.series(OtherKinds, OtherKinds)
		k.other.Store(s)
		return s
	}
	// The vectors panic on a label that is not UTF-8, which a row may contain.
	s := k.vectors.series(strings.ToValidUTF8(string(kind.EventType), "\uFFFD"), strings.ToValidUTF8(string(kind.AggregateType), "\uFFFD"))
	larger := maps.Clone(known)
	larger[kind] = s
	k.known.Store(&larger)
	return s
}

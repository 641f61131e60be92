// Package bykind keeps a value for each kind of event, with a limit.
package bykind

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

// Map keeps a value for each of the first kinds of events that it sees. The limit
// protects memory from event types that come from outside. It is safe for
// concurrent use. Reading takes no lock: a new kind replaces the map.
type Map[V any] struct {
	limit int
	value func(outbox.EventKind) V

	known atomic.Pointer[map[outbox.EventKind]V]
	mu    sync.Mutex // held while known is replaced
}

// New returns a map for limit kinds. It calls value once for each kind, never twice
// at the same time.
func New[V any](limit int, value func(outbox.EventKind) V) *Map[V] {
	m := &Map[V]{limit: limit, value: value}
	m.known.Store(&map[outbox.EventKind]V{})
	return m
}

// Of returns the kind's value; false if the limit leaves no room for it.
func (m *Map[V]) Of(kind outbox.EventKind) (v V, ok bool) {
	known := *m.known.Load()
	if v, ok = known[kind]; ok || len(known) >= m.limit {
		return v, ok
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known = *m.known.Load()
	if v, ok = known[kind]; ok || len(known) >= m.limit {
		return v, ok
	}
	v = m.value(kind)
	larger := maps.Clone(known)
	larger[kind] = v
	m.known.Store(&larger)
	return v, true
}

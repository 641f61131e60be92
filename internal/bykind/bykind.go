// Package bykind keeps a value for each kind of event, or for each topic, with a limit.
package bykind

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Map keeps a value for each of the first kinds that it sees. The limit protects memory from event
// types and topics that come from outside. A Map is safe for concurrent use. Reading takes no lock:
// a new kind replaces the map.
type Map[K comparable, V any] struct {
	limit int
	value func(K) V

	known atomic.Pointer[map[K]V]
	mu    sync.Mutex // held while known is replaced
}

// New returns a map for limit kinds. The map calls value once for each kind, never twice at the
// same time.
func New[K comparable, V any](limit int, value func(K) V) *Map[K, V] {
	m := &Map[K, V]{limit: limit, value: value}
	m.known.Store(&map[K]V{})
	return m
}

// Of returns the kind's value; false if the limit leaves no room for the kind.
func (m *Map[K, V]) Of(kind K) (v V, ok bool) {
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

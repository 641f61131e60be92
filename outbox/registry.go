package outbox

import (
	"errors"
	"fmt"
	"sync"
)

// ListenerRegistry finds the listener of an event. It must be safe for
// concurrent use.
type ListenerRegistry interface {
	// ListenerFor looks up the exact pair.
	ListenerFor(aggregate AggregateType, event EventType) (Listener, bool)
}

// Registry is the default [ListenerRegistry]: one listener for each pair of
// aggregate type and event type. It is safe for concurrent use.
type Registry struct {
	mu        sync.RWMutex
	listeners map[EventKind]Listener
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{listeners: map[EventKind]Listener{}} }

// Register adds the bindings, all or none. It reports every invalid binding
// ([FieldError]) and every pair that already has a listener
// ([ErrDuplicateListener]).
func (r *Registry) Register(bindings ...Binding) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	added := make(map[EventKind]Listener, len(bindings))
	for _, b := range bindings {
		b.AggregateType = orGlobal(b.AggregateType)
		if err := b.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		kind := EventKind{b.AggregateType, b.EventType}
		if r.listeners[kind] != nil || added[kind] != nil {
			errs = append(errs, fmt.Errorf("%w for %s/%s: each pair has exactly one; for code that concerns many events, use an interceptor",
				ErrDuplicateListener, kind.AggregateType, kind.EventType))
			continue
		}
		added[kind] = b.Listener
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for kind, l := range added {
		r.listeners[kind] = l
	}
	return nil
}

// ListenerFor implements [ListenerRegistry].
func (r *Registry) ListenerFor(aggregate AggregateType, event EventType) (Listener, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l, ok := r.listeners[EventKind{aggregate, event}]
	return l, ok
}

// batchListeners is the set of them.
func (r *Registry) batchListeners() map[*batchListener]bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	set := map[*batchListener]bool{}
	for _, l := range r.listeners {
		if batch, ok := l.(*batchListener); ok {
			set[batch] = true
		}
	}
	return set
}

// Len is the number of listeners.
func (r *Registry) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.listeners)
}

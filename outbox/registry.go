package outbox

import (
	"errors"
	"fmt"
	"maps"
	"sync"
)

// ListenerRegistry finds the listener of an event. It must be safe for
// concurrent use.
type ListenerRegistry interface {
	// ListenerFor looks up the exact pair. A registry around a [Registry] returns the
	// listener of that unchanged: it may stand for several; see [Named].
	ListenerFor(aggregate AggregateType, event EventType) (Listener, bool)
}

// Registry is the default [ListenerRegistry]. Each pair of aggregate type and event
// type has one listener, or several with names. It is safe for concurrent use.
type Registry struct {
	mu    sync.RWMutex
	kinds map[EventKind]Listener // a pair with names has [listeners]
	count int
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{kinds: map[EventKind]Listener{}} }

// Register adds the bindings, all or none. It reports all problems together: a
// [FieldError] for each invalid binding, and [ErrDuplicateListener] where several
// listeners of one pair of types have the same name, or one of them has none. The
// listeners of an event are called in the order in which they were registered.
func (r *Registry) Register(bindings ...Binding) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	added := maps.Clone(r.kinds)
	for _, b := range bindings {
		b.AggregateType = orGlobal(b.AggregateType)
		if err := b.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		kind := EventKind{AggregateType: b.AggregateType, EventType: b.EventType}
		l, err := join(added[kind], b)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		added[kind] = l
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	r.kinds = added
	r.count += len(bindings)
	return nil
}

// join adds a listener to those of its pair.
func join(there Listener, b Binding) (Listener, error) {
	named, several := there.(listeners)
	problem := ""
	switch {
	case b.Name == "" && there == nil:
		return b.Listener, nil
	case b.Name == "" && several:
		problem = "the others have names, such as " + named[0].name
	case !several && there != nil && b.Name == "":
		problem = "neither has a name"
	case !several && there != nil:
		problem = "the other one has no name"
	case named.named(b.Name) != nil:
		problem = fmt.Sprintf("another one has the name %q", b.Name)
	default:
		return append(named[:len(named):len(named)], listener{b.Name, b.Listener}), nil
	}
	return nil, fmt.Errorf("%w for %s/%s: %s; give each listener of a pair its own name with outbox.Named, or use an interceptor for code that concerns many events",
		ErrDuplicateListener, b.AggregateType, b.EventType, problem)
}

// ListenerFor implements [ListenerRegistry].
func (r *Registry) ListenerFor(aggregate AggregateType, event EventType) (Listener, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l, ok := r.kinds[EventKind{AggregateType: aggregate, EventType: event}]
	return l, ok
}

// batchListeners is the set of them.
func (r *Registry) batchListeners() map[*batchListener]bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	set := map[*batchListener]bool{}
	for _, l := range r.kinds {
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
	return r.count
}

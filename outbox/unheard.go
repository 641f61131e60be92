package outbox

import (
	"slices"
	"sync"
)

// maxUnheard is how many kinds of events the reads of the table leave out because this process has no
// listener for them. Events of further kinds are deferred, row by row.
const maxUnheard = 100

// unheard are the kinds of events that came to this process and have no listener in it. Their rows
// stay in the table as they are, for processes that have a listener: reads leave these kinds out, as
// they leave out kinds that are paused. unheard is safe for concurrent use.
type unheard struct {
	registry ListenerRegistry

	mu    sync.RWMutex
	kinds map[EventKind]struct{}
}

// has reports whether an event is of such a kind.
func (u *unheard) has(env *Envelope) bool {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if len(u.kinds) == 0 {
		return false
	}
	_, is := u.kinds[kindOf(env)]
	return is
}

// add notes a kind; false when the kind has a listener, or when there are too many kinds.
func (u *unheard) add(kind EventKind) bool {
	if u.isHeard(kind) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, is := u.kinds[kind]; is {
		return true
	}
	if len(u.kinds) >= maxUnheard {
		return false
	}
	if u.kinds == nil {
		u.kinds = map[EventKind]struct{}{}
	}
	u.kinds[kind] = struct{}{}
	return true
}

// list forgets the kinds that have a listener by now, and returns the others, sorted.
func (u *unheard) list() (kinds []EventKind) {
	u.mu.RLock()
	for kind := range u.kinds {
		kinds = append(kinds, kind)
	}
	u.mu.RUnlock()
	kinds = slices.DeleteFunc(kinds, func(kind EventKind) bool {
		if !u.isHeard(kind) {
			return false
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.kinds, kind)
		return true
	})
	slices.SortFunc(kinds, compareKinds)
	return kinds
}

// isHeard reports whether a kind has a listener, or the listener that the kind names. A registry that
// panics has one: the delivery reports the panic.
func (u *unheard) isHeard(kind EventKind) (heard bool) {
	defer func() {
		if recover() != nil {
			heard = true
		}
	}()
	l, found := u.registry.ListenerFor(kind.AggregateType, kind.EventType)
	if kind.Listener != "" {
		several, _ := l.(listeners)
		l = several.named(kind.Listener)
	}
	return found && l != nil
}

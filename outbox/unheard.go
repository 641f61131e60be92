package outbox

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// maxUnheard is how many kinds of events the reads of the table leave out because this process has no
// listener for them. Events of further kinds are deferred, row by row.
const maxUnheard = 100

// unheard are the kinds of events that came to this process and have no listener in it. Their rows
// stay in the table as they are, for processes that have a listener: reads leave these kinds out, as
// they leave out kinds that are paused. unheard is safe for concurrent use.
type unheard struct {
	registry ListenerRegistry

	mu    sync.Mutex                             // held while kinds is replaced
	kinds atomic.Pointer[map[EventKind]struct{}] // a map that never changes; nil: no kind
}

// has reports whether an event is of such a kind.
func (u *unheard) has(env *Envelope) bool {
	kinds := u.kinds.Load()
	if kinds == nil {
		return false
	}
	_, is := (*kinds)[kindOf(env)]
	return is
}

// add notes a kind; false when the kind has a listener, or when there are too many kinds.
func (u *unheard) add(kind EventKind) (noted bool) {
	if u.isHeard(kind) {
		return false
	}
	u.change(func(kinds map[EventKind]struct{}) {
		if len(kinds) < maxUnheard {
			kinds[kind] = struct{}{}
		}
		_, noted = kinds[kind]
	})
	return noted
}

// list forgets the kinds that have a listener by now, and returns the others, sorted.
func (u *unheard) list() []EventKind {
	kinds := u.kinds.Load()
	if kinds == nil {
		return nil
	}
	left := slices.SortedFunc(maps.Keys(*kinds), compareKinds)
	heard := slices.DeleteFunc(slices.Clone(left), func(kind EventKind) bool { return !u.isHeard(kind) })
	if len(heard) == 0 {
		return left
	}
	u.change(func(kinds map[EventKind]struct{}) {
		for _, kind := range heard {
			delete(kinds, kind)
		}
	})
	return slices.DeleteFunc(left, func(kind EventKind) bool { return slices.Contains(heard, kind) })
}

// change replaces the kinds by a copy that a function changed.
func (u *unheard) change(edit func(kinds map[EventKind]struct{})) {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := map[EventKind]struct{}{}
	if kinds := u.kinds.Load(); kinds != nil {
		maps.Copy(next, *kinds)
	}
	edit(next)
	u.kinds.Store(&next)
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

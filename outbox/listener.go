package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// Listener gets the events of a pair of aggregate type and event type. Several workers call the
// listener at once, at least once for each event: make it idempotent by the envelope's EventID. The
// context ends after the ListenerTimeout, or when the outbox shuts down. A nil error says that the
// event is handled: its row becomes DONE. An error or a panic is a failed delivery, which is
// retried as the [RetryPolicy] says, unless the error is made by [Defer], [RetryIn] or [Dead], or
// wraps such an error.
type Listener interface {
	OnEvent(ctx context.Context, env Envelope) error
}

// ListenerFunc makes a function a [Listener].
type ListenerFunc func(ctx context.Context, env Envelope) error

// OnEvent calls f.
func (f ListenerFunc) OnEvent(ctx context.Context, env Envelope) error { return f(ctx, env) }

// Binding binds a listener to the events that it gets.
type Binding struct {
	AggregateType AggregateType
	EventType     EventType
	Listener      Listener
	// Name tells the listeners of a pair apart; see [Named]. Empty: the pair has no
	// other listener.
	Name string
	// Rules are the rules of the listener and its kind; zero fields say nothing.
	Rules Rules
}

// BindingOption changes a [Binding]: [Named], or [Rules]. Of several Rules, the fields that the last
// says count.
type BindingOption interface {
	option() bindingOptions // sealed
}

type named string

func (n named) option() bindingOptions { return bindingOptions{name: string(n)} }

// maxListenerNameLength is how many characters the name of a listener may have.
const maxListenerNameLength = 64

// Named names a listener, so that a pair of types can have several listeners, each with a name and
// retries of its own. Rows in the table contain the name, so keep the name: events that wait for a
// listener whose name is gone are unroutable. A name has at most 64 characters and no control
// characters. The empty name counts as no name.
func Named(name string) BindingOption { return named(name) }

// On binds a listener to an exact pair of types; there is no wildcard. An empty
// aggregate is [Global].
func On(aggregate AggregateType, event EventType, listener Listener, opts ...BindingOption) Binding {
	b := Binding{AggregateType: orGlobal(aggregate), EventType: event, Listener: listener}
	for _, opt := range opts {
		o := opt.option()
		b.Name, b.Rules = defaultTo(o.name, b.Name), o.rules.or(b.Rules)
	}
	return b
}

// kind is the kind of the binding, with the name of the listener.
func (b Binding) kind() EventKind {
	return EventKind{AggregateType: b.AggregateType, EventType: b.EventType, Listener: b.Name}
}

// Validate reports all invalid fields together, each as a [FieldError].
func (b Binding) Validate() error {
	v := validator{what: "binding"}
	v.text("AggregateType", string(b.AggregateType), MaxAggregateTypeLength)
	v.text("EventType", string(b.EventType), MaxEventTypeLength)
	if b.EventType == "" {
		v.add("EventType", "is required")
	}
	if i := strings.IndexFunc(b.Name, unicode.IsControl); i >= 0 {
		v.add("Name", fmt.Sprintf("has a control character at offset %d; use printable characters", i))
	} else {
		v.text("Name", b.Name, maxListenerNameLength)
	}
	if nilness.IsNil(b.Listener) {
		v.add("Listener", fmt.Sprintf("is nil (for %s/%s)", b.AggregateType, b.EventType))
	}
	rules := validator{what: rulesOfBinding(b.kind())}
	b.Rules.validate(&rules)
	v.errs = append(v.errs, rules.errs...)
	if l, ok := b.Listener.(*batchListener); ok && l.problem != nil {
		v.errs = append(v.errs, fmt.Errorf("outbox: the batch listener of %s/%s: %w", b.AggregateType, b.EventType, l.problem))
	}
	return v.err()
}

// ListenerRegistry finds the listener of an event. A registry must be safe for concurrent use.
type ListenerRegistry interface {
	// ListenerFor looks up the exact pair. A registry around a [Registry] returns the listener of
	// the [Registry] unchanged: the listener may stand for several; see [Named].
	ListenerFor(aggregate AggregateType, event EventType) (Listener, bool)
}

// Registry is the default [ListenerRegistry]. Each pair of aggregate type and event type has one
// listener, or several with names. A Registry is safe for concurrent use.
type Registry struct {
	mu    sync.RWMutex
	kinds map[EventKind]registered
	rules map[EventKind]Rules // of each listener, by pair and name
	ruled bool                // a listener has rules
	// sealed: an outbox that started has read the rules.
	sealed bool
	count  int
}

// registered is the listener of a pair of types, or [listeners], and the place of the pair: 1 for the
// pair that was registered first.
type registered struct {
	Listener
	place int32
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry {
	return &Registry{kinds: map[EventKind]registered{}, rules: map[EventKind]Rules{}}
}

// Register adds the bindings, all or none, and reports all problems together: a [FieldError] for
// each invalid binding, and [ErrDuplicateListener] where several listeners of a pair of types have
// the same name, or where a listener of several has no name. The listeners of an event are called
// in the order in which they were registered. Rules fail with [ErrStarted] after an outbox with this
// registry has started, because the outbox would not read them.
func (r *Registry) Register(bindings ...Binding) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	added, rules := maps.Clone(r.kinds), maps.Clone(r.rules)
	for _, b := range bindings {
		b.AggregateType = orGlobal(b.AggregateType)
		if err := b.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		kind := b.kind()
		there := added[kind.pair()]
		l, err := join(there.Listener, b)
		if err == nil {
			err = r.admits(b, rules)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if there.place == 0 {
			there.place = int32(len(added)) + 1
		}
		added[kind.pair()], rules[kind] = registered{l, there.place}, b.Rules
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	r.kinds, r.rules = added, rules
	r.ruled = r.ruled || slices.ContainsFunc(bindings, func(b Binding) bool { return !b.Rules.isZero() })
	r.count += len(bindings)
	return nil
}

// admits reports the rules of a binding that come too late, or that differ from the rules of the
// other listeners of the pair.
func (r *Registry) admits(b Binding, rules map[EventKind]Rules) error {
	if r.sealed && !b.Rules.isZero() {
		return fmt.Errorf("outbox: registering %s: %w", rulesOfBinding(b.kind()), ErrStarted)
	}
	for _, other := range sortedKinds(rules) {
		if other.pair() != b.kind().pair() {
			continue
		}
		if err := differ(b.kind(), b.Rules, other, rules[other]); err != nil {
			return err
		}
	}
	return nil
}

// listenerRules are the rules of all listeners, by pair and name; nil when no listener has rules.
// With seal, further rules are refused.
func (r *Registry) listenerRules(seal bool) map[EventKind]Rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = r.sealed || seal
	if !r.ruled {
		return nil
	}
	return r.rules // Register replaces the map
}

// join adds a listener to the other listeners of its pair.
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
	l, ok := r.find(aggregate, event)
	return l.Listener, ok
}

// find looks up the exact pair, with its place.
func (r *Registry) find(aggregate AggregateType, event EventType) (registered, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l, ok := r.kinds[EventKind{AggregateType: aggregate, EventType: event}]
	return l, ok
}

// places are the pairs in the order of their places.
func (r *Registry) places() []EventKind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	kinds := make([]EventKind, len(r.kinds))
	for kind, l := range r.kinds {
		kinds[l.place-1] = kind
	}
	return kinds
}

// batchListeners is the set of the batch listeners.
func (r *Registry) batchListeners() map[*batchListener]bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	set := map[*batchListener]bool{}
	for _, l := range r.kinds {
		if batch, ok := l.Listener.(*batchListener); ok {
			set[batch] = true
		}
	}
	return set
}

// hears reports whether the listener of a name hears each of the event types.
func (r *Registry) hears(name string, aggregate AggregateType, events []EventType) bool {
	return !slices.ContainsFunc(events, func(event EventType) bool {
		found, _ := r.find(aggregate, event)
		several, _ := found.Listener.(listeners)
		return several.named(name) == nil
	})
}

// list is the kinds that have a listener, sorted.
func (r *Registry) list() []EventKind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	kinds := make([]EventKind, 0, len(r.kinds))
	for kind := range r.kinds {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, compareKinds)
	return kinds
}

// Len is the number of listeners.
func (r *Registry) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.count
}

package outboxfx

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
)

// ListenerOption says what a listener listens to: [On], [For].
type ListenerOption interface{ apply(*listening) }

// listening is what AsListener is told.
type listening struct {
	pairs   []outbox.EventKind
	targets []Target
}

type on outbox.EventKind

func (o on) apply(l *listening) { l.pairs = append(l.pairs, outbox.EventKind(o)) }

// On binds a listener to the exact pair of an aggregate type and an event type;
// an empty aggregate type is [outbox.Global]. Give several for a listener of
// several pairs.
func On(aggregate outbox.AggregateType, event outbox.EventType) ListenerOption {
	if aggregate == "" {
		aggregate = outbox.Global
	}
	return on{AggregateType: aggregate, EventType: event}
}

// Target says which outboxes something is for; [For] makes it. It is a
// [ListenerOption] too.
type Target struct {
	outboxes []string
	given    bool
}

func (t Target) apply(l *listening) { l.targets = append(l.targets, t) }

// For names the outboxes that a listener, a binding, an interceptor or a hook is
// for: one value serves them all. The empty name is the unnamed outbox, which is
// also what everything is for without For.
func For(names ...string) Target { return Target{outboxes: names, given: true} }

// outboxesOf are the outboxes that the targets name.
func outboxesOf(targets []Target) ([]string, error) {
	var (
		names []string
		errs  []error
	)
	for _, t := range targets {
		if t.given && len(t.outboxes) == 0 {
			errs = append(errs, errors.New("is given For without a name"))
		}
		for _, name := range t.outboxes {
			if err := checkName(name); err != nil {
				errs = append(errs, err)
			}
			if slices.Contains(names, name) {
				errs = append(errs, fmt.Errorf("is for %s twice", describe(name)))
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	return names, errors.Join(errs...)
}

// AsListener registers what a constructor returns, a type that is an
// [outbox.Listener], or that and an error, for the pairs that [On] names. The
// constructor may depend on anything in the app, on services that write through
// the same outbox too, and may take an fx.In struct.
func AsListener(ctor any, opts ...ListenerOption) fx.Option {
	var l listening
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&l)
		}
	}
	outboxes, err := outboxesOf(l.targets)
	if err := errors.Join(checkConstructor[outbox.Listener](ctor), l.check(), err); err != nil {
		return fx.Error(fmt.Errorf("outboxfx: AsListener %w", err))
	}
	detail := " of"
	for i, pair := range l.pairs {
		if i > 0 {
			detail += " and"
		}
		detail += fmt.Sprintf(" %s/%s", pair.AggregateType, pair.EventType)
	}
	return contribute("the listener", detail, ctor, outboxes, func(made outbox.Listener) ([]outbox.Binding, error) {
		var bindings []outbox.Binding
		for _, pair := range l.pairs {
			bindings = append(bindings, outbox.On(pair.AggregateType, pair.EventType, made))
		}
		return bindings, checkBindings(bindings)
	})
}

func (l listening) check() error {
	var errs []error
	if len(l.pairs) == 0 {
		errs = append(errs, errors.New("needs On(aggregate, event), which says what the listener listens to"))
	}
	for _, pair := range l.pairs {
		if pair.EventType == "" {
			errs = append(errs, fmt.Errorf("is given On(%q, %q), which names no event", pair.AggregateType, ""))
		}
	}
	return errors.Join(errs...)
}

// AsBinding registers what a constructor returns: an [outbox.Binding], such as a
// topic's Listen makes, or a slice of them, or either and an error.
func AsBinding(ctor any, forOutboxes ...Target) fx.Option {
	outboxes, err := outboxesOf(forOutboxes)
	if checkConstructor[[]outbox.Binding](ctor) == nil && err == nil {
		return contribute("the binding", "", ctor, outboxes, func(made []outbox.Binding) ([]outbox.Binding, error) {
			if len(made) == 0 {
				return nil, errors.New("there is no binding in it")
			}
			return made, checkBindings(made)
		})
	}
	if err := errors.Join(checkConstructor[outbox.Binding](ctor), err); err != nil {
		return fx.Error(fmt.Errorf("outboxfx: AsBinding %w", err))
	}
	return contribute("the binding", "", ctor, outboxes, func(made outbox.Binding) ([]outbox.Binding, error) {
		return []outbox.Binding{made}, checkBindings([]outbox.Binding{made})
	})
}

func checkBindings(bindings []outbox.Binding) error {
	var errs []error
	for _, b := range bindings {
		errs = append(errs, b.Validate())
	}
	return errors.Join(errs...)
}

// register registers what is for one outbox, and names the constructors that
// collide.
func register(o *outbox.Outbox, outboxName string, all []contribution[[]outbox.Binding]) error {
	var (
		errs     []error
		bindings []outbox.Binding
		owner    = map[outbox.EventKind]string{}
	)
	for _, c := range inOrder(all, outboxName) {
		for _, b := range c.value {
			if b.AggregateType == "" {
				b.AggregateType = outbox.Global
			}
			kind := outbox.EventKind{AggregateType: b.AggregateType, EventType: b.EventType}
			if first, taken := owner[kind]; taken {
				errs = append(errs, fmt.Errorf("outboxfx: %w of %s for %s/%s: %s and %s; each pair has exactly one",
					outbox.ErrDuplicateListener, describe(outboxName), kind.AggregateType, kind.EventType, first, c.label))
				continue
			}
			owner[kind] = c.label
			bindings = append(bindings, b)
		}
	}
	if err := errors.Join(errs...); err != nil || len(bindings) == 0 {
		return err
	}
	if err := o.Register(bindings...); err != nil {
		return fmt.Errorf("outboxfx: listeners of %s: %w", describe(outboxName), err)
	}
	return nil
}

package outboxfx

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
)

// ListenerOption names the events of a listener ([On]), the listener itself ([As]), or the outboxes
// that a contribution is for ([For]).
type ListenerOption struct {
	kinds    []outbox.EventKind
	names    []string
	outboxes []string
}

// On binds a listener to the pair of an aggregate type and an event type; an empty aggregate type
// is [outbox.Global]. A listener may have several pairs.
func On(aggregate outbox.AggregateType, event outbox.EventType) ListenerOption {
	return ListenerOption{kinds: []outbox.EventKind{{AggregateType: cmp.Or(aggregate, outbox.Global), EventType: event}}}
}

// As names a listener, so that its pairs can have other listeners, each with a separate name and
// separate retries: see [outbox.Named].
func As(name string) ListenerOption { return ListenerOption{names: []string{name}} }

// For names the outboxes that a listener, a binding, an interceptor or a hook is for: all of them
// share the same value. The empty name is the unnamed outbox, which is the default.
func For(names ...string) ListenerOption { return ListenerOption{outboxes: names} }

// join combines all options.
func join(opts []ListenerOption) (all ListenerOption) {
	for _, o := range opts {
		all.kinds = append(all.kinds, o.kinds...)
		all.names = append(all.names, o.names...)
		all.outboxes = append(all.outboxes, o.outboxes...)
	}
	if len(all.outboxes) == 0 {
		all.outboxes = []string{""}
	}
	slices.Sort(all.outboxes)
	all.outboxes = slices.Compact(all.outboxes)
	return all
}

// pairs returns the text of the pairs for an error.
func (o ListenerOption) pairs() (text string) {
	for i, kind := range o.kinds {
		text += []string{" of ", " and "}[min(i, 1)] + pair(kind)
	}
	return text
}

func pair(kind outbox.EventKind) string {
	return fmt.Sprintf("%s/%s", kind.AggregateType, kind.EventType)
}

// AsListener registers the listener of a constructor for the pairs that [On] names, under the name
// that [As] gives if the pairs have several listeners. The constructor returns a type that is an
// [outbox.Listener], or such a type and an error. The constructor may depend on anything in the
// app, also on services that write through the same outbox, and may take an fx.In struct. It may be
// annotated with fx.Annotate; the result is then an outbox.Listener, as with
// fx.As(new(outbox.Listener)).
func AsListener(ctor any, opts ...ListenerOption) fx.Option {
	o := join(opts)
	if len(o.kinds) == 0 {
		return fx.Error(errors.New("outboxfx: AsListener needs On(aggregate, event), which says what the listener listens to"))
	}
	if len(o.names) > 1 {
		return fx.Error(fmt.Errorf("outboxfx: AsListener takes one As, and has %q", o.names))
	}
	return contribute("AsListener", "listener", ctor, o, func(made outbox.Listener) []outbox.Binding {
		var bindings []outbox.Binding
		for _, kind := range o.kinds {
			bindings = append(bindings, outbox.On(kind.AggregateType, kind.EventType, made, outbox.Named(strings.Join(o.names, ""))))
		}
		return bindings
	})
}

// AsBinding registers the bindings of a constructor. The constructor returns an [outbox.Binding],
// such as a topic's Listen makes, or a slice of bindings, or either and an error. It may be
// annotated with fx.Annotate if it returns a single binding. The only option is [For].
func AsBinding(ctor any, opts ...ListenerOption) fx.Option {
	if !isAnnotated(ctor) && checkConstructor[[]outbox.Binding](ctor) == nil {
		return contribute("AsBinding", "bindings of", ctor, join(opts), func(made []outbox.Binding) []outbox.Binding { return made })
	}
	return contribute("AsBinding", "binding of", ctor, join(opts), func(made outbox.Binding) []outbox.Binding { return []outbox.Binding{made} })
}

// AsInterceptor adds an interceptor around every delivery. The constructor returns an
// [outbox.Interceptor], or an interceptor and an error. The interceptor runs inside the
// interceptors of [WithInterceptors], in the order of the options. The interceptors must exist
// before the outbox is built, so they cannot depend on the outbox's writer. The only option is
// [For].
func AsInterceptor(ctor any, opts ...ListenerOption) fx.Option {
	return contribute("AsInterceptor", "interceptor", ctor, join(opts), func(made outbox.Interceptor) outbox.Interceptor { return made })
}

// AsHook adds a hook to every write. The constructor returns an [outbox.WriterHook], or a hook and
// an error. The hook runs after the hooks of [WithHooks], in the order of the options. Like
// interceptors, hooks cannot depend on the outbox's writer. The only option is [For].
func AsHook(ctor any, opts ...ListenerOption) fx.Option {
	return contribute("AsHook", "hook", ctor, join(opts), func(made outbox.WriterHook) outbox.WriterHook { return made })
}

// register registers the listeners of an outbox. Errors name the constructors of duplicates.
func register(o *outbox.Outbox, outboxName string, all []contribution[[]outbox.Binding]) error {
	var errs []error
	owners := map[string]string{} // by pair, and by pair and name
	for _, c := range inOrder(all, outboxName) {
		for _, b := range c.value {
			kind := pair(outbox.EventKind{AggregateType: cmp.Or(b.AggregateType, outbox.Global), EventType: b.EventType})
			named := kind + " " + b.Name
			switch err := o.Register(b); {
			case errors.Is(err, outbox.ErrDuplicateListener):
				errs = append(errs, fmt.Errorf("outboxfx: %s and %s: %w", cmp.Or(owners[named], owners[kind], "WithRegistry"), c.label, err))
			case err != nil:
				errs = append(errs, fmt.Errorf("outboxfx: %s of %s, for %s: %w", c.label, kind, describe(outboxName), err))
			default:
				owners[kind], owners[named] = c.label, c.label
			}
		}
	}
	return errors.Join(errs...)
}

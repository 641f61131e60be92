package outboxfx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
)

// group is the value group of the app's outboxes and of the app's contributions to them.
const group = `group:"outboxfx"`

// contribution is a listener's bindings, an interceptor or a hook, and the
// outboxes that it is for.
type contribution[T any] struct {
	serial   int64  // the order of the options; the order of a value group is random
	label    string // such as "the listener orders.NewMailer"
	outboxes []string
	value    T
	close    closer // called after the outboxes are closed; nil: nothing to close
}

// closer closes the resources of a contribution.
type closer func(ctx context.Context) error

// serial numbers contributions.
var serial atomic.Int64

// contribute provides the R that a constructor returns, which content turns into a T.
func contribute[R, T any](option, what string, ctor any, to ListenerOption, content func(R) T) fx.Option {
	return contributeClosing(option, what, ctor, to, func(made R) (T, closer, error) { return content(made), nil, nil })
}

// contributeClosing is contribute for contributions that can fail, and must be closed.
func contributeClosing[R, T any](option, what string, ctor any, to ListenerOption, content func(R) (T, closer, error)) fx.Option {
	annotated := isAnnotated(ctor)
	var err error
	if !annotated {
		err = checkConstructor[R](ctor)
	}
	if option != "AsListener" && len(to.kinds) > 0 {
		err = errors.Join(err, errors.New("takes no On"))
	}
	if option != "AsListener" && option != "AsRelay" && len(to.names) > 0 {
		err = errors.Join(err, errors.New("takes no As"))
	}
	if err != nil {
		return fx.Error(fmt.Errorf("outboxfx: %s %w", option, err))
	}
	n, label := serial.Add(1), "the "+what+" "+functionName(ctor)
	made := func(made R, err error) (contribution[T], error) {
		var value T
		var end closer
		if err == nil {
			value, end, err = content(made)
		}
		if err != nil {
			return contribution[T]{}, fmt.Errorf("outboxfx: %s%s: %w", label, to.pairs(), err)
		}
		return contribution[T]{n, label, to.outboxes, value, end}, nil
	}
	var provided fx.Option
	if annotated { // a module keeps the results of two such constructors apart
		provided = fx.Module(label,
			fx.Provide(ctor, fx.Private),
			fx.Provide(fx.Annotate(func(result R) (contribution[T], error) { return made(result, nil) }, fx.ResultTags(group))))
	} else {
		provided = fx.Provide(located(ctor, adapt(ctor, made), fx.ResultTags(group)))
	}
	options := []fx.Option{
		provided,
		fx.Invoke(func(app outboxNames) error { return checkTargets(label+to.pairs(), to.outboxes, app.Known) }),
	}
	for _, name := range to.outboxes {
		options = append(options, fx.Provide(located(outboxOfAContribution, outboxOfAContribution, fx.ParamTags(nameTag(name)), fx.ResultTags(group))))
	}
	return fx.Options(append(options, fx.Invoke(requireOutboxes))...)
}

// isAnnotated reports whether a constructor is the result of fx.Annotate.
func isAnnotated(ctor any) bool {
	t := reflect.TypeOf(ctor)
	return t != nil && t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[fx.Annotated]().PkgPath()
}

// ofGroup returns the bindings that the app provides in the value group of an outbox.
func (m *module) ofGroup(bindings []outbox.Binding) contribution[[]outbox.Binding] {
	return contribution[[]outbox.Binding]{label: "a binding in " + groupTag(m.name), outboxes: []string{m.name}, value: bindings}
}

type outboxNames struct {
	fx.In
	Known []Name `group:"outboxfx"`
}

// checkTargets reports outboxes that no module makes.
func checkTargets(label string, outboxes []string, known []Name) error {
	for _, name := range outboxes {
		module, correct := "outboxfx.Module", ""
		if name != "" {
			module = fmt.Sprintf("outboxfx.NewModule(outboxfx.Named(%q))", name)
		}
		if len(known) > 0 {
			correct = fmt.Sprintf(", or correct outboxfx.For, which may name %q", slices.Sorted(slices.Values(known)))
		}
		if !slices.Contains(known, Name(name)) {
			return fmt.Errorf("outboxfx: %s is for %s, which no module makes; add %s to the app%s", label, describe(name), module, correct)
		}
	}
	return nil
}

// neededOutboxes let fx.ValidateApp, which does not call checkTargets, find missing
// outboxes.
type neededOutboxes struct {
	fx.In
	Needed []neededOutbox `group:"outboxfx"`
}

type neededOutbox struct{}

func outboxOfAContribution(*outbox.Outbox) neededOutbox { return neededOutbox{} }

func requireOutboxes(neededOutboxes) {}

// inOrder returns the contributions to an outbox in the order of the options.
func inOrder[T any](all []contribution[T], outboxName string) []contribution[T] {
	all = slices.SortedFunc(slices.Values(all), func(a, b contribution[T]) int { return cmp.Compare(a.serial, b.serial) })
	return slices.DeleteFunc(all, func(c contribution[T]) bool { return !slices.Contains(c.outboxes, outboxName) })
}

// values returns the given values, followed by the values of the contributions to an outbox.
func values[T any](given []T, all []contribution[T], outboxName string) []T {
	given = slices.Clone(given)
	for _, c := range inOrder(all, outboxName) {
		given = append(given, c.value)
	}
	return given
}

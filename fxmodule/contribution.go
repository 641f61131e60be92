package outboxfx

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
)

// group is the value group of what the app contributes to its outboxes.
const group = `group:"outboxfx"`

// contribution is a listener's bindings, an interceptor or a hook, and the
// outboxes that it is for.
type contribution[T any] struct {
	serial   int64  // the order of the options, since that of a group is random
	label    string // such as "the listener orders.NewMailer"
	outboxes []string
	value    T
}

// serial numbers contributions.
var serial atomic.Int64

// contribute provides what a constructor of an R returns, made a T, to the
// outboxes. It is two flat providers and, for each outbox, an Invoke that needs
// it: that is how fx.ValidateApp knows that an outbox does not exist.
func contribute[R, T any](what, detail string, ctor any, outboxes []string, content func(R) (T, error)) fx.Option {
	n := serial.Add(1)
	label := what + " " + functionName(ctor)
	own := fmt.Sprintf("%s #%d", plain(what+detail), n)
	options := []fx.Option{
		fx.Provide(fx.Annotated{Name: own, Target: ctor}),
		fx.Provide(convert(ctor, `name:"`+own+`"`, group, func(made R) (contribution[T], error) {
			value, err := content(made)
			if err != nil {
				return contribution[T]{}, fmt.Errorf("outboxfx: %s%s: %w", label, detail, err)
			}
			return contribution[T]{serial: n, label: label, outboxes: outboxes, value: value}, nil
		})),
	}
	for _, name := range outboxes {
		options = append(options, fx.Invoke(fx.Annotate(func(*outbox.Outbox) {}, fx.ParamTags(nameTag(name)))))
	}
	return fx.Options(options...)
}

// plain is a text that can stand in a tag.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune("\"`\\,", r) {
			return '_'
		}
		return r
	}, s)
}

// inOrder are the contributions to one outbox in the order of the options.
func inOrder[T any](all []contribution[T], outboxName string) []contribution[T] {
	var mine []contribution[T]
	for _, c := range all {
		if slices.Contains(c.outboxes, outboxName) {
			mine = append(mine, c)
		}
	}
	slices.SortFunc(mine, func(a, b contribution[T]) int { return cmp.Compare(a.serial, b.serial) })
	return mine
}

// values are the contributions themselves.
func values[T any](contributions []contribution[T]) []T {
	var list []T
	for _, c := range contributions {
		list = append(list, c.value)
	}
	return list
}

// unknownTargets reports contributions to outboxes that no module makes.
func unknownTargets[T any](all []contribution[T], known []moduleName) []error {
	var errs []error
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b contribution[T]) int { return cmp.Compare(a.serial, b.serial) })
	for _, c := range sorted {
		for _, name := range c.outboxes {
			if !slices.Contains(known, moduleName(name)) {
				errs = append(errs, fmt.Errorf("outboxfx: %s is for %s, which no module of the app makes; there is %s",
					c.label, describe(name), list(known)))
			}
		}
	}
	return errs
}

// list names the outboxes of the app.
func list(known []moduleName) string {
	names := make([]string, len(known))
	for i, n := range known {
		names[i] = describe(string(n))
	}
	slices.Sort(names)
	return strings.Join(names, " and ")
}

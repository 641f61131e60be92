package outboxfx

import (
	"database/sql"
	"fmt"
	"reflect"
	"slices"

	"go.uber.org/fx"
)

// part is a replaceable part of an outbox: a value, or a constructor of one. It
// is provided under a tag of its own and the outbox needs it without
// optional:"true", so that a constructor whose dependency is missing is an error
// and not a default in disguise.
type part struct {
	option string // that it was given to, such as "WithStore"
	given  any
}

// providePart provides a T: what was given, or else the fallback, a
// constructor.
func providePart[T any](outboxName, what string, p *part, fallback any) fx.Option {
	tag := partTag(outboxName, what)
	if p == nil {
		return fx.Provide(fx.Annotate(fallback, ownParameters(outboxName, fallback), fx.ResultTags(tag)))
	}
	if value, isValue := p.given.(T); isValue {
		if isNil(value) {
			return fx.Error(fmt.Errorf("outboxfx: %s of %s is given a nil %T", p.option, describe(outboxName), value))
		}
		return fx.Provide(fx.Annotate(func() T { return value }, fx.ResultTags(tag)))
	}
	if err := checkConstructor[T](p.given); err != nil {
		return fx.Error(fmt.Errorf("outboxfx: %s of %s %w", p.option, describe(outboxName), err))
	}
	made := partName(outboxName, "given "+what)
	var ctor any = fx.Annotated{Name: made, Target: p.given}
	if needsOwn(outboxName, p.given) {
		ctor = fx.Annotate(p.given, ownParameters(outboxName, p.given), fx.ResultTags(`name:"`+made+`"`))
	}
	return fx.Options(fx.Provide(ctor), fx.Provide(convert(p.given, `name:"`+made+`"`, tag, func(value T) (T, error) {
		if isNil(value) {
			return value, fmt.Errorf("outboxfx: the constructor given to %s of %s, %s, returned nil", p.option, describe(outboxName), functionName(p.given))
		}
		return value, nil
	})))
}

// ownParameters are the tags that make a constructor's parameters of some types
// this outbox's own. A constructor that takes an fx.In struct has its own tags.
func ownParameters(outboxName string, ctor any) fx.Annotation {
	return fx.ParamTags(ownTags(outboxName, ctor)...)
}

func needsOwn(outboxName string, ctor any) bool {
	return slices.ContainsFunc(ownTags(outboxName, ctor), func(tag string) bool { return tag != "" })
}

func ownTags(outboxName string, ctor any) []string {
	t := reflect.TypeOf(ctor)
	tags := make([]string, t.NumIn())
	for i := range tags {
		switch t.In(i) {
		case reflect.TypeFor[*sql.DB](), reflect.TypeFor[MetricsPrefix]():
			tags[i] = nameTag(outboxName)
		case reflect.TypeFor[resolved]():
			tags[i] = partTag(outboxName, "config")
		case reflect.TypeFor[[]moduleName]():
			tags[i] = group
		}
	}
	return tags
}

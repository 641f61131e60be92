package outboxfx

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

var typeOfError = reflect.TypeFor[error]()

// given is the argument of an option of [NewModule]: a value, or a constructor.
type given struct {
	option string // such as "WithStore"
	what   any
}

// providePart provides a T under a tag, from the given value or constructor, otherwise from the
// fallback, a constructor.
func providePart[T any](m *module, tag string, g *given, fallback any) fx.Option {
	if g == nil {
		return fx.Provide(located(fallback, fallback, append(m.paramTags(fallback), fx.ResultTags(tag))...))
	}
	ctor, where := g.what, fmt.Sprintf("outboxfx: %s of %s", g.option, describe(m.name))
	if value, isValue := ctor.(T); isValue {
		ctor = func() T { return value }
	} else if err := checkConstructor[T](ctor); err != nil {
		return fx.Error(fmt.Errorf("%s %w", where, err))
	}
	provider := adapt(ctor, func(made T, err error) (T, error) {
		if err == nil && nilness.IsNil(made) {
			err = errors.New("it is nil")
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", where, err)
		}
		return made, err
	})
	return fx.Provide(located(ctor, provider, append(m.paramTags(provider), fx.ResultTags(tag))...))
}

// paramTags returns the tags for a constructor's parameters whose types belong to this outbox. An
// fx.In struct gets no tag, because it has its own tags.
func (m *module) paramTags(ctor any) []fx.Annotation {
	t := reflect.TypeOf(ctor)
	tags := make([]string, t.NumIn())
	for i := range tags {
		switch t.In(i) {
		case reflect.TypeFor[*sql.DB](), reflect.TypeFor[Config](), reflect.TypeFor[Name](), reflect.TypeFor[MetricsPrefix]():
			tags[i] = nameTag(m.name)
		case reflect.TypeFor[validConfig]():
			tags[i] = partTag(m.name, "configuration")
		}
	}
	if !slices.ContainsFunc(tags, func(tag string) bool { return tag != "" }) {
		return nil
	}
	return []fx.Annotation{fx.ParamTags(tags...)}
}

// checkConstructor reports why ctor is not a constructor of a T.
func checkConstructor[T any](ctor any) error {
	want := reflect.TypeFor[T]()
	t := reflect.TypeOf(ctor)
	switch {
	case t == nil || t.Kind() != reflect.Func:
		return fmt.Errorf("is given %T; it needs a constructor func(dependencies…) %v", ctor, want)
	case reflect.ValueOf(ctor).IsNil():
		return fmt.Errorf("is given a nil %v", t)
	case t.NumOut() == 0 || t.NumOut() > 2 || t.NumOut() == 2 && t.Out(1) != typeOfError:
		return fmt.Errorf("is given %s, a %v; a constructor returns a %v, or that and an error", functionName(ctor), t, want)
	case !t.Out(0).AssignableTo(want):
		return fmt.Errorf("is given %s, which returns a %v and not a %v", functionName(ctor), t.Out(0), want)
	}
	return nil
}

// adapt turns a constructor of an R into a constructor of a T with the same
// dependencies: fn converts the results. It leaves out variadic parameters, as fx does.
func adapt[R, T any](ctor any, fn func(made R, err error) (T, error)) any {
	v := reflect.ValueOf(ctor)
	in := make([]reflect.Type, v.Type().NumIn())
	for i := range in {
		in[i] = v.Type().In(i)
	}
	if v.Type().IsVariadic() {
		in = in[:len(in)-1]
	}
	out := []reflect.Type{reflect.TypeFor[T](), typeOfError}
	return reflect.MakeFunc(reflect.FuncOf(in, out, false), func(args []reflect.Value) []reflect.Value {
		var made R
		var err error
		results := v.Call(args)
		reflect.ValueOf(&made).Elem().Set(results[0])
		if len(results) == 2 {
			err, _ = results[1].Interface().(error)
		}
		value, err := fn(made, err)
		return []reflect.Value{reflect.ValueOf(&value).Elem(), reflect.ValueOf(&err).Elem()}
	}).Interface()
}

// located returns fx.Annotate of fn with the name and line of the function at, for fx's errors. fx
// has a field for this function, but fx.Annotate leaves the field empty; errors would then show
// reflect's makeFuncStub.
func located(at, fn any, annotations ...fx.Annotation) any {
	annotated := fx.Annotate(fn, annotations...)
	v := reflect.New(reflect.TypeOf(annotated)).Elem()
	v.Set(reflect.ValueOf(annotated))
	if field := v.FieldByName("FuncPtr"); field.Kind() == reflect.Uintptr && field.CanSet() {
		field.SetUint(uint64(reflect.ValueOf(at).Pointer()))
	}
	return v.Interface()
}

// functionName returns a function's name with the name of its package, without the folders. For an
// annotated function it returns the text that fx prints.
func functionName(fn any) string {
	if isAnnotated(fn) {
		return fmt.Sprint(fn)
	}
	name := runtime.FuncForPC(reflect.ValueOf(fn).Pointer()).Name()
	return name[strings.LastIndex(name, "/")+1:]
}

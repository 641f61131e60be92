package outboxfx

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"go.uber.org/fx"
)

var typeOfError = reflect.TypeFor[error]()

// checkConstructor says what keeps ctor from being a constructor of a T.
func checkConstructor[T any](ctor any) error {
	want := reflect.TypeFor[T]()
	t := reflect.TypeOf(ctor)
	switch {
	case t == nil:
		return fmt.Errorf("is given nil; it wants a constructor func(dependencies…) %v", want)
	case t.Kind() != reflect.Func:
		return fmt.Errorf("is given a %v; it wants a constructor func(dependencies…) %v", t, want)
	case reflect.ValueOf(ctor).IsNil():
		return fmt.Errorf("is given a nil %v", t)
	case t.NumOut() == 0 || t.NumOut() > 2 || t.NumOut() == 2 && t.Out(1) != typeOfError:
		return fmt.Errorf("is given %s, a %v, which must return a %v, or that and an error", functionName(ctor), t, want)
	case !t.Out(0).AssignableTo(want):
		return fmt.Errorf("is given %s, a constructor of %v, which is no %v", functionName(ctor), t.Out(0), want)
	}
	return nil
}

// convert is a provider of a To from what a constructor provides as its own type
// under a name. The constructor itself is handed to fx as it is, since a function
// around it, those of fx.Annotate included, would hide its name and line in
// errors.
func convert[From, To any](ctor any, fromTag, toTag string, fn func(From) (To, error)) any {
	made := reflect.TypeOf(ctor).Out(0)
	provider := reflect.MakeFunc(
		reflect.FuncOf([]reflect.Type{made}, []reflect.Type{reflect.TypeFor[To](), typeOfError}, false),
		func(args []reflect.Value) []reflect.Value {
			var from From
			reflect.ValueOf(&from).Elem().Set(args[0])
			to, err := fn(from)
			return []reflect.Value{reflect.ValueOf(&to).Elem(), reflect.ValueOf(&err).Elem()}
		})
	return fx.Annotate(provider.Interface(), fx.ParamTags(fromTag), fx.ResultTags(toTag))
}

// functionName is a function's name with its package's, without the folders.
func functionName(fn any) string {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	if f == nil {
		return fmt.Sprintf("a %T", fn)
	}
	name := f.Name()
	return name[strings.LastIndex(name, "/")+1:]
}

// isNil is true for a nil interface and for one that holds a nil value.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}

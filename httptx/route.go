package httptx

import (
	"context"
	"reflect"
	"strings"
	"sync"
)

// routed is the context of an attempt of a request that may run again. The router chi keeps the place of
// a request in a value of the context, and changes the value while it routes: each attempt gets a copy of
// it as it was before. The package does not import chi.
type routed struct {
	context.Context

	mu    sync.Mutex
	given reflect.Value // of the router outside; not valid before anything asked for it
	copy  reflect.Value
}

// isRoute reports whether a value of a context is chi's.
func isRoute(value any) bool {
	typ := reflect.TypeOf(value)
	if typ == nil || typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct || typ.Elem().Name() != "Context" {
		return false
	}
	path, _, _ := strings.Cut(typ.Elem().PkgPath(), "/chi")
	return path == "github.com/go-chi"
}

// Value returns the attempt's copy of chi's value.
func (r *routed) Value(key any) any {
	value := r.Context.Value(key)
	if !isRoute(value) {
		return value
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.given.IsValid() {
		r.given = reflect.ValueOf(value)
		r.copy = reflect.New(r.given.Type().Elem())
		r.copy.Elem().Set(r.given.Elem())
	}
	if r.given.Interface() != value { // of another router
		return value
	}
	return r.copy.Interface()
}

// keep gives the middlewares outside the route of the last attempt.
func (r *routed) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given.IsValid() {
		r.given.Elem().Set(r.copy.Elem())
	}
}

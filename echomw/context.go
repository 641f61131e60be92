package echomw

import (
	"reflect"
	"sync"

	"github.com/labstack/echo/v4"
)

// heldContext is the context that handlers get. It hears of the errors that are
// answered inside of the middleware: without that, a handler that wrote a
// success and panicked under an inner Recover would be committed. The error
// handler that answers is the application's of that moment; nothing of the
// application is replaced.
type heldContext struct {
	echo.Context
	x *exchange
}

// Error implements [echo.Context].
func (h *heldContext) Error(err error) {
	if err == nil {
		h.Context.Error(nil)
		return
	}
	h.x.report(err, h.Context.Error)
}

// install returns the context that the handler gets, and a function that undoes
// what it did. A context of the application's own, made as Echo's guide has it,
// stays what the handler gets, for it will assert its type: ours goes into the
// echo.Context that it embeds.
func (h *heldContext) install(c echo.Context) (inner echo.Context, uninstall func()) {
	field, ok := embeddedContext(c)
	if !ok {
		return h, func() {}
	}
	embedded := field.Interface().(echo.Context)
	h.Context = embedded
	field.Set(reflect.ValueOf(echo.Context(h)))
	return c, func() { field.Set(reflect.ValueOf(embedded)) }
}

var contextType = reflect.TypeFor[echo.Context]()

// embeddings has for a type of contexts the index of the embedded echo.Context,
// nil when there is none.
var embeddings sync.Map

// embeddedContext is the field, not nil, of a pointer to a struct that embeds
// echo.Context.
func embeddedContext(c echo.Context) (reflect.Value, bool) {
	typ := reflect.TypeOf(c)
	found, known := embeddings.Load(typ)
	if !known {
		found = embedding(typ)
		embeddings.Store(typ, found)
	}
	index := found.([]int)
	if index == nil {
		return reflect.Value{}, false
	}
	field, err := reflect.ValueOf(c).Elem().FieldByIndexErr(index)
	if err != nil || !field.CanSet() || field.IsNil() {
		return reflect.Value{}, false
	}
	return field, true
}

func embedding(typ reflect.Type) []int {
	if typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct {
		return nil
	}
	field, ok := typ.Elem().FieldByName(contextType.Name())
	if !ok || !field.Anonymous || field.Type != contextType {
		return nil
	}
	return field.Index
}

// Package nilness finds nil values behind interfaces.
package nilness

import "reflect"

// IsNil is true for a nil interface and for an interface that holds a nil value.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan, reflect.Slice, reflect.Interface:
		return r.IsNil()
	default:
		return false
	}
}

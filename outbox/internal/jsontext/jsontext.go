// Package jsontext compares JSON texts by their meaning, for tests of stores that
// rewrite the text.
package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
)

// Shorten keeps a failure readable when a value is long.
func Shorten(v any) string {
	const limit = 400
	s := fmt.Sprint(v)
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:limit], ""), len(s))
}

// Same says how two JSON texts differ in meaning: key order, space and the
// way a number or a character is written do not count.
func Same(got, want string) error {
	if got == want {
		return nil
	}
	g, err := Decode(got)
	if err != nil {
		return fmt.Errorf("%s is not JSON: %w", Shorten(got), err)
	}
	w, err := Decode(want)
	if err != nil {
		return fmt.Errorf("the expected %s is not JSON: %w", Shorten(want), err)
	}
	if !reflect.DeepEqual(g, w) {
		return fmt.Errorf("it is %s, want %s", Shorten(got), Shorten(want))
	}
	return nil
}

// Decode reads JSON text with every number written in the same way.
func Decode(text string) (any, error) {
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return normalNumbers(v), nil
}

// normalNumbers writes every number in the same way.
func normalNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = normalNumbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = normalNumbers(value)
		}
	case json.Number:
		// SetString would take very long for an exponent of many digits.
		if len(v) < 64 && !strings.ContainsAny(string(v), "eE") {
			if r, ok := new(big.Rat).SetString(string(v)); ok {
				return json.Number(r.RatString())
			}
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return v
}

package outboxfx

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// set puts the value into the Config, or says what is wrong with it.
func (e entry) set(c *Config) (problem string) {
	s, known := settingAt(e.key)
	if !known {
		return e.unknown()
	}
	if e.value == nil {
		return "has no value"
	}
	field := s.field(c)
	pointer := field.Kind() == reflect.Pointer
	if pointer {
		field = reflect.New(s.kind.Elem()).Elem()
	}
	switch field.Interface().(type) {
	case time.Duration:
		d, problem := durationOf(e.value)
		if problem != "" {
			return problem
		}
		if d < 0 { // before -1ns is taken for outbox.NoRetention
			return fmt.Sprintf("is %s; it must not be negative", d)
		}
		if d == 0 && s.path == "purge.retention" {
			d = outbox.NoRetention
		}
		field.SetInt(int64(d))
	case int:
		n, problem := intOf(e.value)
		if problem != "" {
			return problem
		}
		field.SetInt(int64(n))
	case bool:
		b, problem := boolOf(e.value)
		if problem != "" {
			return problem
		}
		field.SetBool(b)
	default:
		text, isText := e.value.(string)
		if !isText {
			return fmt.Sprintf("is %s, and must be text; put it in quotes", show(e.value))
		}
		field.SetString(text)
	}
	if pointer {
		s.field(c).Set(field.Addr())
	}
	return ""
}

// unknown says what is wrong with a key that is no setting.
func (e entry) unknown() string {
	if isSection(e.key) {
		if m, isMap := e.value.(map[string]any); e.value == nil || isMap && len(m) == 0 {
			return "" // a section with nothing in it
		}
		return fmt.Sprintf("is %s, but it is a section with keys of its own", show(e.value))
	}
	return unknownKey(e.key, func(s setting) string { return s.path })
}

func durationOf(value any) (time.Duration, string) {
	const form = "write it with its unit, as in 5s, 200ms or 168h"
	if value == 0 {
		return 0, ""
	}
	text, isText := value.(string)
	if !isText {
		return 0, fmt.Sprintf("is %s, which is no duration; %s", show(value), form)
	}
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, ""
	}
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return 0, fmt.Sprintf("is %q, but there is no unit for days; write %dh", text, n*24)
		}
	}
	return 0, fmt.Sprintf("is %.40q, which is no duration; %s", text, form)
}

func intOf(value any) (int, string) {
	switch v := value.(type) {
	case int:
		return v, ""
	case string:
		if n, err := strconv.Atoi(v); err == nil {
			return n, ""
		}
	case int64:
		if v >= math.MinInt && v <= math.MaxInt {
			return int(v), ""
		}
	}
	return 0, fmt.Sprintf("is %s; it must be a whole number", show(value))
}

func boolOf(value any) (result bool, problem string) {
	switch v := value.(type) {
	case bool:
		return v, ""
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b, ""
		}
	}
	return false, fmt.Sprintf("is %s; it must be true or false", show(value))
}

// show is a value in an error.
func show(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%.40q", v)
	case []any:
		return "a list"
	case map[string]any:
		return "a section"
	default:
		return fmt.Sprintf("%.40s", fmt.Sprint(v))
	}
}

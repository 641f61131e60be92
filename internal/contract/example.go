package contract

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// maxExample is how deep an example is nested. Recursive schemas end earlier where they may.
const maxExample = 8

// Example returns a value that a schema describes: the examples, defaults and values that the schema
// lists, and otherwise a value of the type.
func Example(document map[string]any) any { return example(document, document, 0) }

func example(document map[string]any, value any, depth int) any {
	s := resolve(document, asObject(value), 0)
	for _, key := range []string{"examples", "enum"} {
		if listed := list(s.keys[key]); len(listed) > 0 {
			return listed[0]
		}
	}
	for _, key := range []string{"example", "default", "const"} {
		if given, is := s.keys[key]; is {
			return given
		}
	}
	if s.null && depth >= maxExample/2 {
		return nil
	}
	if len(s.union) > 0 && depth < maxExample {
		return example(document, s.union[0], depth+1)
	}
	switch {
	case covers(s.types, allTypes), len(s.types) == 0:
		return map[string]any{}
	case slices.Contains(s.types, "object"):
		return exampleObject(document, &s, depth)
	case slices.Contains(s.types, "array"):
		if depth >= maxExample/2 && atLeast(&s, "minItems", 0) == 0 {
			return []any{}
		}
		if depth >= maxExample {
			return []any{}
		}
		elements := make([]any, min(atLeast(&s, "minItems", 1), maxElements))
		for i := range elements {
			elements[i] = example(document, s.keys["items"], depth+1)
		}
		return elements
	case slices.Contains(s.types, "string"):
		return exampleText(&s)
	case slices.Contains(s.types, "boolean"):
		return true
	default:
		if least, is := number(s.keys["minimum"]); is && least > 1 {
			return s.keys["minimum"]
		}
		if most, is := number(s.keys["maximum"]); is && most < 1 {
			return s.keys["maximum"]
		}
		return json.Number("1")
	}
}

// maxElements bounds the array of an example.
const maxElements = 16

// atLeast is a bound of the schema, or another number if there is none.
func atLeast(s *schema, key string, otherwise int) int {
	if n, is := number(s.keys[key]); is && n >= 0 && n <= maxElements {
		return int(n)
	}
	return otherwise
}

func exampleObject(document map[string]any, s *schema, depth int) any {
	fields := map[string]any{}
	required := texts(s.keys["required"])
	properties := object(s.keys["properties"])
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !slices.Contains(required, name) && depth >= maxExample/2 || depth >= maxExample {
			continue
		}
		fields[name] = example(document, properties[name], depth+1)
	}
	if rule, is := s.keys["additionalProperties"].(map[string]any); is && len(properties) == 0 && depth < maxExample/2 {
		key := "key"
		if _, isNumber := s.keys["propertyNames"]; isNumber {
			key = "1"
		}
		fields[key] = example(document, rule, depth+1)
	}
	return fields
}

func exampleText(s *schema) string {
	formats := map[string]string{
		"date-time": "2026-01-02T15:04:05Z", "date": "2026-01-02", "time": "15:04:05Z", "email": "somebody@example.com",
		"uri": "https://example.com/", "uuid": "01890a5d-ac96-774b-bcce-b302099a8057", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "hostname": "example.com",
	}
	format, _ := s.keys["format"].(string)
	text := formats[format]
	switch {
	case text != "":
		return text
	case s.keys["contentEncoding"] == "base64":
		return "dGV4dA=="
	}
	text = "text"
	if longest, is := number(s.keys["maxLength"]); is && longest < float64(len(text)) {
		return text[:max(int(longest), 0)]
	}
	if shortest, is := number(s.keys["minLength"]); is && shortest > float64(len(text)) && shortest <= 256 {
		return text + strings.Repeat("x", int(shortest)-len(text))
	}
	return text
}

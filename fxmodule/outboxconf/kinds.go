package outboxconf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// keyOfKinds is the key whose value is a list.
const keyOfKinds = "kinds"

const kindsExample = "[{event-type: OrderPaid, rate: 10}]"

// parseKinds parses a list of kinds in YAML, of which JSON is a part.
func parseKinds(text string, into *[]outboxfx.KindConfig) (problem string) {
	var list []yaml.Node
	*into = nil
	if err := yaml.NewDecoder(strings.NewReader(text)).Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Sprintf("is not a list of kinds such as %s: %.200s", kindsExample, strings.Join(strings.Fields(err.Error()), " "))
	}
	if len(list) == 0 {
		return "has no kind; leave it out, or write a list such as " + kindsExample
	}
	for i := range list {
		var kind outboxfx.KindConfig
		if problem := setKind(&kind, &list[i]); problem != "" {
			return fmt.Sprintf("has a wrong element %d: %s", i, problem)
		}
		*into = append(*into, kind)
	}
	return ""
}

// setKind sets the fields of an element.
func setKind(kind *outboxfx.KindConfig, element *yaml.Node) (problem string) {
	fields := maps.Collect(kind.Settings())
	f := file{lines: map[string]int{}, isSection: func(key string) bool { return hasBelow(fields, key) }}
	if element = follow(element); element.Kind != yaml.MappingNode {
		return fmt.Sprintf("it needs keys and values, such as %s", strings.Trim(kindsExample, "[]"))
	}
	if f.walk(element, ""); f.keys > maxKeys {
		return fmt.Sprintf("it has more keys than the limit, %d", maxKeys)
	}
	for _, e := range f.entries {
		field, known := fields[e.key]
		switch {
		case e.problem != "":
		case !known:
			e.problem = fmt.Sprintf("is unknown; the keys are %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		default:
			e.problem = set(keyOfKinds+"."+e.key, field, e.text)
		}
		if e.problem != "" {
			return fmt.Sprintf("%.40s %s", e.key, e.problem)
		}
	}
	return ""
}

// hasBelow reports whether a key is a group of fields.
func hasBelow(fields map[string]any, key string) bool {
	for field := range fields {
		if strings.HasPrefix(field, key+".") {
			return true
		}
	}
	return false
}

// textOf is the text of a list, for parseKinds.
func textOf(list *yaml.Node) (string, error) {
	text, err := yaml.Marshal(list)
	if len(text) > maxSize {
		return "", fmt.Errorf("has %d bytes; the limit is %d", len(text), maxSize)
	}
	return string(text), err
}

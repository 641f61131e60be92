package outboxconf

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// keyOfLimits is the key whose value is a list.
const keyOfLimits = "dispatcher.limits"

// parseLimits parses a list of limits in YAML, of which JSON is a part.
func parseLimits(text string, into *[]outboxfx.LimitConfig) (problem string) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	*into = nil
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Sprintf("is not a list of limits such as [{event-type: OrderPaid, rate: 10}]: %.200s", strings.Join(strings.Fields(err.Error()), " "))
	}
	if len(*into) == 0 {
		return "has no limit; leave it out, or write a list such as [{event-type: OrderPaid, rate: 10}]"
	}
	return ""
}

// textOf is the text of a list, for parseLimits.
func textOf(list *yaml.Node) (string, error) {
	text, err := yaml.Marshal(list)
	if len(text) > maxSize {
		return "", fmt.Errorf("has %d bytes; the limit is %d", len(text), maxSize)
	}
	return string(text), err
}

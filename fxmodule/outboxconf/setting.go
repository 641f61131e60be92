package outboxconf

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// keys are all keys of a Config.
var keys = slices.Sorted(maps.Keys(maps.Collect(new(outboxfx.Config).Settings())))

// isSection reports whether a key is a group of settings.
func isSection(key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, key+".") })
}

// sectionAbove is the part of an unknown key before a known one.
func sectionAbove(key string) string {
	for _, known := range keys {
		if section, found := strings.CutSuffix(key, "."+known); found {
			return section
		}
	}
	return ""
}

// set parses the text into a key's field, or returns the problem.
func set(key string, field any, text string) (problem string) {
	var err error
	switch field := field.(type) {
	case *time.Duration:
		*field, problem = parseDuration(text)
		switch {
		case *field != 0 || problem != "":
		case key == "purge.retention", key == "kinds.retention":
			*field = outbox.NoRetention
		case key == "kinds.listener-timeout":
			*field = outbox.NoTimeout
		case key != "poller.skip-recent" && key != "dispatcher.listener-timeout":
			problem = "is 0s; it must be positive"
		}
	case *float64:
		if *field, err = strconv.ParseFloat(text, 64); err != nil {
			problem = fmt.Sprintf("is %.40q; it must be a number", text)
		} else if *field == 0 {
			problem = "is 0; it must be positive"
		}
	case *int:
		if text == "endless" && strings.HasSuffix(key, ".max-attempts") {
			*field = outbox.Endless
		} else if *field, err = strconv.Atoi(text); err != nil {
			problem = fmt.Sprintf("is %.40q; it must be a whole number", text)
		} else if *field == 0 {
			problem = "is 0; it must be positive"
		}
	case *bool:
		*field, err = strconv.ParseBool(text)
	case **bool:
		*field = new(bool)
		**field, err = strconv.ParseBool(text)
	case *outboxfx.Mode: // also in the specification's spelling
		*field = outboxfx.Mode(strings.ReplaceAll(strings.ToLower(text), "_", "-"))
	case *outboxfx.OnDead:
		*field = outboxfx.OnDead(text)
	case *outboxfx.OnUnroutable:
		*field = outboxfx.OnUnroutable(text)
	case *outboxfx.OnDone:
		*field = outboxfx.OnDone(text)
	case *string:
		*field = text
	case *[]outboxfx.KindConfig:
		problem = parseKinds(text, field)
	}
	if err != nil && problem == "" {
		problem = fmt.Sprintf("is %.40q; it must be true or false", text)
	}
	return problem
}

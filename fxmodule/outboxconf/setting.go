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

// sectionAbove is the part of an unknown key that is in front of a known one.
func sectionAbove(key string) string {
	for _, known := range keys {
		if section, found := strings.CutSuffix(key, "."+known); found {
			return section
		}
	}
	return ""
}

// set puts the text into a key's field, or says what is wrong with it.
func set(key string, field any, text string) (problem string) {
	var err error
	switch field := field.(type) {
	case *time.Duration:
		if *field, problem = parseDuration(text); *field == 0 && problem == "" {
			*field, problem = zero(key)
		}
	case *int:
		if *field, err = strconv.Atoi(text); err != nil {
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
	case *outboxfx.OnDone:
		*field = outboxfx.OnDone(text)
	case *string:
		*field = text
	}
	if err != nil && problem == "" {
		problem = fmt.Sprintf("is %.40q; it must be true or false", text)
	}
	return problem
}

// zero is what a duration of 0 means, where it does not mean the default.
func zero(key string) (d time.Duration, problem string) {
	switch key {
	case "purge.retention":
		return outbox.NoRetention, ""
	case "poller.skip-recent", "dispatcher.listener-timeout", "dispatcher.defer-unroutable":
		return 0, ""
	default:
		return 0, "is 0s; it must be positive"
	}
}

package outboxfx

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// KeyError is a problem of a single key of a configuration. All key errors are reported together:
// errors.As finds the first error, and the message has all errors.
type KeyError struct {
	Key     string // such as "dispatcher.worker-count"
	Place   string // "outbox.yaml:3", a variable's name, or empty for a Config made in code
	Problem string // such as "is -1; it must not be negative"
}

// Error returns the key, the place and the problem.
func (e *KeyError) Error() string {
	if e.Place == "" {
		return e.Key + " " + e.Problem
	}
	return fmt.Sprintf("%s (%s) %s", e.Key, e.Place, e.Problem)
}

// Settings yields each key, such as "dispatcher.worker-count", and a pointer to the field of the
// key, in the order of the fields.
func (c *Config) Settings() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) { settings(reflect.ValueOf(c).Elem(), "", yield) }
}

func settings(v reflect.Value, prefix string, yield func(string, any) bool) bool {
	for i := range v.NumField() {
		key, field := prefix+v.Type().Field(i).Tag.Get("yaml"), v.Field(i)
		if field.Kind() == reflect.Struct && !settings(field, key+".", yield) ||
			field.Kind() != reflect.Struct && !yield(key, field.Addr().Interface()) {
			return false
		}
	}
	return true
}

// Validate reports all invalid settings, each as a [KeyError]: an unknown word, a negative number,
// a setting that the mode does not have, and a setting of the purger without purge.enabled. Package
// outbox checks the upper limits when the outbox is built.
func (c Config) Validate() error {
	c.Mode = c.Mode.canonical()
	var errs []error
	for key, field := range c.Settings() {
		if value := reflect.ValueOf(field).Elem(); !value.IsZero() {
			if problem := c.problem(key, value.Interface()); problem != "" {
				errs = append(errs, &KeyError{Key: key, Problem: problem})
			}
		}
	}
	return errors.Join(errs...)
}

func (c Config) problem(key string, value any) string {
	switch v := value.(type) {
	case int:
		if v < 0 {
			return fmt.Sprintf("is %d; it must not be negative", v)
		}
	case time.Duration:
		if v < 0 && (key != "purge.retention" || v != outbox.NoRetention) {
			return fmt.Sprintf("is %s; it must not be negative", v)
		}
		if key == "retry.max-delay" && v < c.Retry.BaseDelay {
			return fmt.Sprintf("is %s, which is less than retry.base-delay, %s", v, c.Retry.BaseDelay)
		}
	case Mode:
		return unknownWord(v, modes)
	case OnDead:
		if problem := unknownWord(v, []OnDead{BlockKey, SkipDead}); problem != "" {
			return problem
		}
	case OnDone:
		if problem := unknownWord(v, []OnDone{Keep, Delete}); problem != "" {
			return problem
		}
	}
	if problem := c.modeProblem(key); problem != "" {
		return problem
	}
	if strings.HasPrefix(key, "purge.") && c.Purge.Enabled == nil {
		return "is set, but purge.enabled is not; set that to true to delete old rows, or to false to keep them"
	}
	return ""
}

// modeProblem reports a setting that the mode does not have.
func (c Config) modeProblem(key string) string {
	have := modesOf(key)
	switch {
	case !slices.Contains(modes, c.Mode): // an unknown mode is reported separately
		return ""
	case key == "claim-locking.enabled" && !*c.Claim.Enabled:
		if slices.Contains(have, c.Mode) {
			return fmt.Sprintf("is false, but the mode %s needs leases; leave the key out, or set mode to %s", c.Mode, SingleNode)
		}
		return ""
	case slices.Contains(have, c.Mode):
		return ""
	}
	return fmt.Sprintf("is set, but the mode %s does not have it; it is for %s", c.Mode, list(have))
}

// modesOf returns the modes that have a setting.
func modesOf(key string) []Mode {
	section, _, _ := strings.Cut(key, ".")
	switch {
	case section == "poller", key == "purge.on-done",
		key == "dispatcher.drain-timeout", key == "dispatcher.listener-timeout", key == "dispatcher.defer-unroutable":
		return []Mode{SingleNode, MultiNode, OrderedByKey, Ordered}
	case key == "dispatcher.hot-queue-capacity", key == "dispatcher.limits":
		return []Mode{SingleNode, MultiNode}
	case section == "dispatcher", section == "retry":
		return []Mode{SingleNode, MultiNode, OrderedByKey}
	case key == "claim-locking.tenants-in-turn":
		return []Mode{MultiNode}
	case section == "claim-locking":
		return []Mode{MultiNode, OrderedByKey}
	case section == "ordering":
		return []Mode{OrderedByKey}
	default:
		return modes
	}
}

func unknownWord[T ~string](got T, words []T) string {
	if slices.Contains(words, got) {
		return ""
	}
	return fmt.Sprintf("is %.40q; it must be one of %s", string(got), list(words))
}

func list(words any) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(words), "[]")), ", ")
}

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
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// KeyError is a problem of a single key of a configuration. All key errors are reported together:
// errors.As finds the first error, and the message has all errors.
type KeyError struct {
	Key     string // such as "dispatcher.worker-count"
	Place   string // "outbox.yaml:3", a variable's name, or for any other Config the field, "Config.Dispatch.Workers"
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
	return func(yield func(string, any) bool) {
		settings(reflect.ValueOf(c).Elem(), "", func(field string, value any) bool {
			return yield(keyError(field, "").Key, value)
		})
	}
}

// settings yields each field of a Config, such as "Dispatch.Workers", and a pointer to it.
func settings(v reflect.Value, prefix string, yield func(string, any) bool) bool {
	for i := range v.NumField() {
		name, field := prefix+v.Type().Field(i).Name, v.Field(i)
		if field.Kind() == reflect.Struct && !settings(field, name+".", yield) ||
			field.Kind() != reflect.Struct && !yield(name, field.Addr().Interface()) {
			return false
		}
	}
	return true
}

// keyError returns the error of a field of a Config, such as Kinds[0].Rate, with the
// field's key; nil if a Config has no such field.
func keyError(field, problem string) *KeyError {
	typ, key := reflect.TypeFor[Config](), ""
	for name := range strings.SplitSeq(field, ".") {
		name, index, isElement := strings.Cut(name, "[")
		f, has := typ.FieldByName(name)
		if !has {
			return nil
		}
		typ, key = f.Type, key+"."+f.Tag.Get("yaml")
		if isElement {
			typ, key = typ.Elem(), key+"["+index
		}
	}
	return &KeyError{Key: key[1:], Place: "Config." + field, Problem: problem}
}

// ownNames replaces the name of a field in an [outbox.FieldError] by the name of the field of a
// Config.
var ownNames = strings.NewReplacer(
	"Config.Mode.RunLength", "Ordering.RunLength",
	"Config.Mode.DrainTimeout", "Dispatch.DrainTimeout", // of outbox.Ordered, as the next two
	"Config.Mode.ListenerTimeout", "Dispatch.ListenerTimeout",
	"Config.Mode.OnUnroutable", "Dispatch.OnUnroutable",
	"Config.Mode.", "", "Config.Purge.", "Purge.",
	"sqlstore.WithTable", "Table", "Config.Version", "Version",
)

// ownName is the name of the field of a Config for the name of a field in an [outbox.FieldError].
func (c Config) ownName(field string) string {
	for i, k := range c.Kinds {
		for _, mode := range []string{"Config.Mode.Dispatch", "Config.Mode"} { // of outbox.Ordered
			rest, found := strings.CutPrefix(field, fmt.Sprintf("%s.Rules[%s]", mode, k.kind()))
			if found {
				return fmt.Sprintf("Kinds[%d]%s", i, strings.Replace(rest, ".RetryPolicy", ".Retry", 1))
			}
		}
	}
	return ownNames.Replace(field)
}

// keyErrors returns the errors of an error of package outbox that are about fields of a Config,
// each as a [KeyError].
func (c Config) keyErrors(err error) (errs []*KeyError) {
	for ; err != nil; err = errors.Unwrap(err) {
		if joined, is := err.(interface{ Unwrap() []error }); is {
			for _, err := range joined.Unwrap() {
				errs = append(errs, c.keyErrors(err)...)
			}
			return errs
		}
		if field, is := err.(*outbox.FieldError); is { //nolint:errorlint // the loop unwraps
			if key := keyError(c.ownName(field.Field), field.Problem); key != nil {
				return []*KeyError{key}
			}
		}
	}
	return nil
}

// Validate reports all invalid settings, each as a [KeyError]: an unknown word, a value that
// package outbox refuses, a setting that the mode does not have, and a setting of the purger
// without purge.enabled.
func (c Config) Validate() error {
	c.Mode = c.Mode.canonical()
	refused := c.refused()
	var errs []error
	settings(reflect.ValueOf(&c).Elem(), "", func(field string, pointer any) bool {
		value, key := reflect.ValueOf(pointer).Elem(), keyError(field, "")
		if value.IsZero() {
			return true
		}
		if key.Problem = c.problem(key.Key, value.Interface()); key.Problem != "" {
			errs = append(errs, key)
		} else {
			errs = append(errs, refused[key.Key]...)
		}
		if field == "Kinds" {
			errs = append(errs, c.kindErrors()...)
		}
		return true
	})
	return errors.Join(errs...)
}

// refused returns the errors that package outbox reports, by the key of the setting. The rules of
// package outbox have no copy here: a value that a copy lets pass would fail when the outbox is
// built, with the name of another package's field and without the place of the key.
func (c Config) refused() map[string][]error {
	on := true
	c.Purge.Enabled = &on // the settings of a purger that is off are checked too
	cfg := c.outboxConfig(nil)
	cfg.Store = sqlstore.SQLite(c.storeOptions()...)
	_, err := outbox.New(cfg) // always fails, because Config.DB is missing, and reports all fields
	refused := map[string][]error{}
	for _, err := range c.keyErrors(err) {
		key, _, _ := strings.Cut(err.Key, "[")
		refused[key] = append(refused[key], err)
	}
	return refused
}

// kindErrors are the problems of the elements of kinds for which package outbox has no rule.
func (c Config) kindErrors() (errs []error) {
	seen := map[outbox.EventKind]int{}
	for i, k := range c.Kinds {
		add := func(field, problem string) {
			if problem != "" {
				errs = append(errs, keyError(fmt.Sprintf("Kinds[%d]%s", i, field), problem))
			}
		}
		if first, again := seen[k.kind()]; again {
			add("", fmt.Sprintf("is %s, as in element %d; put the rules of a kind into one element", k.kind(), first))
		} else {
			seen[k.kind()] = i
		}
		if k.OnDone != "" {
			add(".OnDone", unknownWord(k.OnDone, []OnDone{Keep, Delete}))
		}
		add(".Retry.BaseDelay", negative(k.Retry.BaseDelay))
		add(".Retry.MaxDelay", k.Retry.maxProblem())
		if k.Retention != 0 && c.Purge.Enabled == nil {
			add(".Retention", notEnabled)
		}
	}
	return errs
}

func negative(d time.Duration) string {
	if d >= 0 {
		return ""
	}
	return fmt.Sprintf("is %s; it must not be negative", d)
}

// maxProblem is the problem of the longest wait.
func (r RetryConfig) maxProblem() string {
	if r.MaxDelay > 0 && r.MaxDelay < r.BaseDelay {
		return fmt.Sprintf("is %s, which is less than retry.base-delay, %s", r.MaxDelay, r.BaseDelay)
	}
	return negative(r.MaxDelay)
}

const notEnabled = "is set, but purge.enabled is not; set that to true to delete old rows, or to false to keep them"

// problem returns the problem of a setting for which package outbox has no rule.
func (c Config) problem(key string, value any) string {
	switch v := value.(type) {
	case time.Duration:
		problem := ""
		switch key {
		case "retry.base-delay":
			problem = negative(v)
		case "retry.max-delay":
			problem = c.Retry.maxProblem()
		}
		if problem != "" {
			return problem
		}
	case Mode:
		return unknownWord(v, modes)
	case OnDead:
		if problem := unknownWord(v, []OnDead{BlockKey, SkipDead}); problem != "" {
			return problem
		}
	case OnUnroutable:
		if problem := unknownWord(v, []OnUnroutable{LeaveUnroutable, KillUnroutable}); problem != "" {
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
		return notEnabled
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
	case section == "poller", section == "kinds", key == "purge.on-done",
		key == "dispatcher.drain-timeout", key == "dispatcher.listener-timeout", key == "dispatcher.on-unroutable":
		return []Mode{SingleNode, MultiNode, OrderedByKey, Ordered}
	case key == "dispatcher.hot-queue-capacity":
		return []Mode{SingleNode, MultiNode}
	case section == "dispatcher", section == "retry":
		return []Mode{SingleNode, MultiNode, OrderedByKey}
	case key == "purge.undelivered":
		return []Mode{WriterOnly}
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

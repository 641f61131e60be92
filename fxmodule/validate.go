package outboxfx

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// maxOwner is how many characters locked_by holds.
const maxOwner = 128

// Validate reports everything that is wrong, each as a [KeyError]: values out of
// range, an unknown mode, and settings that the mode does not have.
func (c Config) Validate() error {
	return errors.Join(c.problems(func(s setting) (string, bool) { return "", !s.field(&c).IsZero() })...)
}

// problems checks the settings that isSet says were set, and tells where.
func (c Config) problems(isSet func(setting) (place string, set bool)) []error {
	var errs []error
	known := isMode(c.Mode)
	for _, s := range settings {
		place, set := isSet(s)
		if !set {
			continue
		}
		problem := c.valueProblem(s)
		if problem == "" && known {
			problem = c.modeProblem(s)
		}
		if problem != "" {
			errs = append(errs, &KeyError{Key: s.path, Place: place, Problem: problem})
		}
	}
	return errs
}

func isMode(m Mode) bool {
	return m == "" || slices.Contains([]Mode{SingleNode, MultiNode, Ordered, WriterOnly}, m)
}

// valueProblem says what is wrong with a value, whatever the mode.
func (c Config) valueProblem(s setting) string {
	switch value := s.field(&c).Interface().(type) {
	case int:
		if value <= 0 {
			return fmt.Sprintf("is %d; it must be positive", value)
		}
		if limit := s.limit(); value > limit {
			return fmt.Sprintf("is %d; the limit is %d", value, limit)
		}
	case time.Duration:
		switch {
		case s.path == "purge.retention" && value == outbox.NoRetention:
		case value < 0:
			return fmt.Sprintf("is %s; it must not be negative", value)
		case value == 0 && !s.mayBeZero():
			return "is 0s; it must be positive"
		case s.path == "retry.max-delay" && value < c.Retry.BaseDelay:
			return fmt.Sprintf("is %s, which is less than retry.base-delay, %s", value, c.Retry.BaseDelay)
		}
	case Mode:
		if !isMode(value) {
			return unknownWord(string(value), string(SingleNode), string(MultiNode), string(Ordered), string(WriterOnly))
		}
	case OnDone:
		if value != "" && value != Keep && value != Delete {
			return unknownWord(string(value), string(Keep), string(Delete))
		}
	case string:
		return textProblem(s, value)
	}
	return ""
}

func textProblem(s setting, value string) string {
	switch {
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return "is no text: it is not UTF-8, or holds a NUL"
	case s.path == "table-name" && value != "" && sqlstore.SQLite(sqlstore.WithTable(value)).Validate() != nil:
		return fmt.Sprintf("is %.100q; it must be letters, digits and underscores, at most 63, not starting with a digit, optionally schema.table", value)
	case s.path == "claim-locking.owner-id" && utf8.RuneCountInString(value) > maxOwner:
		return fmt.Sprintf("is %d characters long; the limit is %d", utf8.RuneCountInString(value), maxOwner)
	}
	return ""
}

// modeProblem says that the mode does not have the setting.
func (c Config) modeProblem(s setting) string {
	mode := c.Mode
	fill(&mode, SingleNode)
	if s.path == "claim-locking.enabled" {
		switch enabled := *c.ClaimLocking.Enabled; {
		case enabled && mode != MultiNode:
			return fmt.Sprintf("is true, but the mode %s has no leases; set mode to %s", mode, MultiNode)
		case !enabled && mode == MultiNode:
			return fmt.Sprintf("is false, but the mode %s cannot do without leases; leave it out, or set mode to %s", mode, SingleNode)
		}
		return ""
	}
	if slices.Contains(s.modes(), mode) {
		return ""
	}
	var have []string
	for _, m := range s.modes() {
		have = append(have, string(m))
	}
	return fmt.Sprintf("is set, but the mode %s does not have it; it is for %s", mode, enumerate(have, "and"))
}

// unknownWord says which words would do.
func unknownWord(got string, words ...string) string {
	for i, word := range words {
		if fold(word) == fold(got) {
			return fmt.Sprintf("is %.40q; did you mean %s?", got, words[i])
		}
	}
	hint := ""
	if near := nearest(got, words); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return fmt.Sprintf("is %.40q; it must be %s%s", got, enumerate(words, "or"), hint)
}

func enumerate(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}

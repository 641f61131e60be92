package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// validator collects the problems of a value's fields, to report all of them at once.
type validator struct {
	what string // the prefix of field names, such as "Envelope"
	errs []error
}

func (v *validator) add(field, problem string) {
	v.errs = append(v.errs, &FieldError{Field: v.what + "." + field, Problem: problem})
}

func (v *validator) err() error {
	switch len(v.errs) {
	case 0:
		return nil
	case 1:
		return v.errs[0]
	default:
		return errors.Join(v.errs...)
	}
}

// text checks the string of a column: its length in characters, UTF-8, no NUL. An
// empty string is valid.
func (v *validator) text(field, s string, limit int) {
	// A string of at most limit bytes cannot have more than limit characters.
	if len(s) > limit {
		if n := utf8.RuneCountInString(s); n > limit {
			v.add(field, fmt.Sprintf("is %d characters long; the limit is %d", n, limit))
			return
		}
	}
	v.clean(field, s)
}

// line checks a text that is a single line.
func (v *validator) line(field, s string, limit int) {
	v.text(field, s, limit)
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 && isClean(s) {
		r, _ := utf8.DecodeRuneInString(s[i:])
		v.add(field, fmt.Sprintf("holds the control character %U at byte %d; write a single line without control characters", r, i))
	}
}

// clean checks that every database can store a string.
func (v *validator) clean(field, s string) {
	switch {
	case isClean(s):
	case !utf8.ValidString(s):
		v.add(field, fmt.Sprintf("is not valid UTF-8 (%d bytes)", len(s)))
	default:
		v.add(field, "holds a NUL character, which databases do not store")
	}
}

func isClean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// notNegative checks an option whose zero is the default.
func (v *validator) notNegative(field string, n int) {
	if n < 0 {
		v.add(field, fmt.Sprintf("is %d; it must not be negative", n))
	}
}

// count checks a number that takes memory.
func (v *validator) count(field string, n, limit int) {
	if n > limit {
		v.add(field, fmt.Sprintf("is %d; the limit is %d", n, limit))
		return
	}
	v.notNegative(field, n)
}

// duration checks an option. Less than a millisecond is a mistake: a number without a
// unit, which Go takes as nanoseconds.
func (v *validator) duration(field string, d time.Duration) {
	switch {
	case d < 0:
		v.add(field, fmt.Sprintf("is %s; it must not be negative", d))
	case d > 0 && d < time.Millisecond:
		v.add(field, fmt.Sprintf("is %s, less than a millisecond; did you mean %s?", d, d*time.Second))
	}
}

func defaultTo[T comparable](value, def T) T {
	var zero T
	if value == zero {
		return def
	}
	return value
}

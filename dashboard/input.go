package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox"
)

// inputError names a parameter or a field of a form that is wrong.
type inputError struct{ name, problem string }

func (e *inputError) Error() string { return fmt.Sprintf("The field %q %s.", e.name, e.problem) }

// input is a query or a form: each field is known, and is given once unless it may be repeated.
// Empty fields are fields that the user left empty.
type input url.Values

// lengths are the longest values of all fields, in characters.
var lengths = map[string]int{
	"id": outbox.MaxEventIDLength, "event_type": outbox.MaxEventTypeLength, "aggregate_type": outbox.MaxAggregateTypeLength,
	"aggregate_id": outbox.MaxAggregateIDLength, "tenant_id": outbox.MaxTenantIDLength,
	"status": 7, "since": 40, "until": 40, "after": 500, "group": 64,
	"error_text": 200, "kind": 250, "text": 100, "sort": 10, "from": 6, "typed": 20, "number": 10,
	"name": outbox.MaxReplayName, "listener": 64, "event_types": outbox.MaxReplayTypes * (outbox.MaxEventTypeLength + 2), "rate": 10,
	"action": 16, "scope": 10, "of": 10, "token": 100, "deletion": 26, "for": 20, "reason": outbox.MaxPauseReason, "node": 128, "outbox": 64,
}

// filterFields select dead letters.
var filterFields = []string{"event_type", "aggregate_type", "aggregate_id", "tenant_id", "group", "since", "until"}

// maxSelected is how many dead letters a form selects at most.
const maxSelected = 500

// inputOf checks the fields of a query or a form.
func inputOf(values url.Values, known ...string) (input, error) {
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, &inputError{fmt.Sprintf("%.40s", name), "is unknown; this page takes " + cmp.Or(strings.Join(known, ", "), "no parameters")}
		case len(list) > 1 && name != "id":
			return nil, &inputError{name, "is given more than once"}
		case len(list) > maxSelected:
			return nil, &inputError{name, fmt.Sprintf("is given %d times; select at most %d", len(list), maxSelected)}
		}
		for _, value := range list {
			switch n := utf8.RuneCountInString(value); {
			case n > lengths[name]:
				return nil, &inputError{name, fmt.Sprintf("is %d characters long; the limit is %d", n, lengths[name])}
			case !utf8.ValidString(value) || strings.Contains(value, "\x00"):
				return nil, &inputError{name, "is not UTF-8, or contains a NUL"}
			}
		}
	}
	return input(values), nil
}

// query checks the parameters of the address.
func (p *page) query(known ...string) (input, error) {
	values, err := url.ParseQuery(p.r.URL.RawQuery)
	if err != nil {
		return nil, &inputError{"query", "is malformed"}
	}
	for name, list := range values {
		if len(list) > 1 {
			return nil, &inputError{fmt.Sprintf("%.40s", name), "is given more than once"}
		}
	}
	return inputOf(values, known...)
}

func (in input) get(name string) string { return url.Values(in).Get(name) }

// trimmed returns the input without the white space that people type or paste around values.
func (in input) trimmed() input {
	trimmed := input{}
	for name, list := range in {
		for _, value := range list {
			trimmed[name] = append(trimmed[name], strings.TrimSpace(value))
		}
	}
	return trimmed
}

// given returns the fields that are not empty, apart from these.
func (in input) given(except ...string) url.Values {
	kept := url.Values{}
	for name, list := range in {
		if !slices.Contains(except, name) && list[0] != "" {
			kept[name] = list
		}
	}
	return kept
}

// time reads a time in UTC: in the format that browsers send, or in RFC 3339.
func (in input) time(name string) (time.Time, error) {
	text := strings.TrimSpace(in.get(name))
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil && t.UTC().Year() >= 1000 && t.UTC().Year() <= 9999 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &inputError{name, "is not a time; write it like 2006-01-02T15:04, in UTC, or with a zone like 2006-01-02T15:04:05+02:00"}
}

// isTimeError reports whether only a time of a search is wrong, so that the form can be shown again.
func isTimeError(err error) bool {
	var wrong *inputError
	return errors.As(err, &wrong) && (wrong.name == "since" || wrong.name == "until")
}

// wrong writes the error of a form.
func wrong(err error) markup {
	return tags(`<p role="alert" class="note">{}</p>
`, err.Error())
}

func (in input) times() (since, until time.Time, err error) {
	if since, err = in.time("since"); err != nil {
		return since, until, err
	}
	if until, err = in.time("until"); err != nil {
		return since, until, err
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		err = &inputError{"until", "is not after since"}
	}
	return since, until, err
}

// filter returns the selection of dead letters, without ids.
func (in input) filter() (outbox.DeadFilter, error) {
	since, until, err := in.times()
	return outbox.DeadFilter{
		EventType: outbox.EventType(in.get("event_type")), AggregateType: outbox.AggregateType(in.get("aggregate_type")),
		AggregateID: in.get("aggregate_id"), TenantID: in.get("tenant_id"), Group: in.get("group"), Since: since, Until: until,
	}, err
}

// number reads a number from zero; an empty text is zero.
func (in input) number(name string) (int, error) {
	text := in.get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, &inputError{name, "is not a number"}
	}
	return n, nil
}

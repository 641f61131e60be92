package echomw

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// parameterError says which parameter of a request is wrong, and how.
type parameterError struct{ name, problem string }

func (e *parameterError) Error() string { return "parameter " + e.name + " " + e.problem }

// filterParameters are those that choose dead letters.
var filterParameters = []string{"event_type", "aggregate_type", "since", "until"}

// parameters are the query's, each known, given once and not empty.
type parameters map[string]string

// parametersOf reads the query and refuses what it does not know. Echo's own
// "pretty" is known always. A body is refused too: filters in it would be
// ignored, and the request do more than was asked.
func parametersOf(c echo.Context, known ...string) (parameters, error) {
	if r := c.Request(); r.Body != nil && r.ContentLength != 0 {
		if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
			return nil, &parameterError{"body", "is not empty; parameters go into the query"}
		}
	}
	query, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, &parameterError{"query", "is malformed: " + err.Error()}
	}
	p := make(parameters, len(query))
	for name, values := range query {
		switch value := values[0]; {
		case name == "pretty":
		case !slices.Contains(known, name):
			return nil, &parameterError{strconv.Quote(name), "is unknown; " + knownParameters(known)}
		case len(values) > 1:
			return nil, &parameterError{name, "is given more than once"}
		case value == "":
			return nil, &parameterError{name, "is empty; leave it out"}
		case !storable(value):
			return nil, &parameterError{name, "is not UTF-8, or holds a NUL"}
		default:
			p[name] = value
		}
	}
	return p, nil
}

func knownParameters(known []string) string {
	if len(known) == 0 {
		return "there are none here"
	}
	return "known are " + strings.Join(known, ", ")
}

// storable says whether every database takes the text as a value.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func (p parameters) limit() (int, error) {
	text, given := p["limit"]
	if !given {
		return DefaultAdminLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxAdminLimit {
		return 0, &parameterError{"limit", fmt.Sprintf("is %q; it must be a number from 1 to %d", text, MaxAdminLimit)}
	}
	return n, nil
}

// placeOf is a letter's place in the order of listings, as "after" has it.
func placeOf(letter *outbox.DeadLetter) string {
	return letter.DiedAt.UTC().Format(time.RFC3339Nano) + "," + letter.EventID
}

// after is the letter behind which a listing begins.
func (p parameters) after() (outbox.DeadLetter, error) {
	text, given := p["after"]
	if !given {
		return outbox.DeadLetter{}, nil
	}
	died, id, _ := strings.Cut(text, ",")
	at, err := time.Parse(time.RFC3339Nano, died)
	if year := at.UTC().Year(); err != nil || id == "" || year < 1000 || year > 9999 {
		return outbox.DeadLetter{}, &parameterError{"after", fmt.Sprintf("is %q; it must be the field next of a listing", text)}
	}
	return outbox.DeadLetter{Envelope: outbox.Envelope{EventID: id}, DiedAt: at.UTC()}, nil
}

func (p parameters) filter() (outbox.DeadFilter, error) {
	since, err := p.time("since")
	if err != nil {
		return outbox.DeadFilter{}, err
	}
	until, err := p.time("until")
	if err != nil {
		return outbox.DeadFilter{}, err
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return outbox.DeadFilter{}, &parameterError{"until", "is not after since"}
	}
	return outbox.DeadFilter{
		EventType: outbox.EventType(p["event_type"]), AggregateType: outbox.AggregateType(p["aggregate_type"]),
		Since: since, Until: until,
	}, nil
}

func (p parameters) time(name string) (time.Time, error) {
	text, given := p[name]
	if !given {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, &parameterError{name, fmt.Sprintf("is %q; it must be a time like 2006-01-02T15:04:05Z (a + in it is written %%2B)", text)}
	}
	if year := t.UTC().Year(); year < 1000 || year > 9999 {
		return time.Time{}, &parameterError{name, fmt.Sprintf("is %q; the year must be from 1000 to 9999", text)}
	}
	return t.UTC(), nil
}

// idOf is the event id of the path. What cannot be one is not found.
func idOf(c echo.Context) (string, error) {
	if _, err := parametersOf(c); err != nil {
		return "", err
	}
	id := c.Param("id")
	if c.Request().URL.RawPath != "" { // Echo routes by it, and leaves the escapes in
		unescaped, err := url.PathUnescape(id)
		if err != nil {
			return "", &parameterError{"id", "is malformed: " + err.Error()}
		}
		id = unescaped
	}
	if id == "" || utf8.RuneCountInString(id) > 36 || !storable(id) {
		return "", outbox.ErrNotFound
	}
	return id, nil
}

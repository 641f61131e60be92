package httptx

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox"
)

// parameterError names the parameter of a request that is wrong.
type parameterError struct{ name, problem string }

func (e *parameterError) Error() string { return fmt.Sprintf("parameter %q %s", e.name, e.problem) }

// filterParameters select dead letters.
var filterParameters = []string{"event_type", "aggregate_type", "aggregate_id", "tenant_id", "group", "since", "until"}

// parameters are the parameters of the query: each is known, given once and not empty.
type parameters map[string]string

// parametersOf reads the query and rejects unknown parameters, apart from "pretty". A body is
// rejected too: filters in a body would be ignored, and the request would then select more than the
// client meant.
func parametersOf(r *http.Request, known []string) (parameters, error) {
	if r.Body != nil && r.ContentLength != 0 {
		if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
			return nil, &parameterError{"body", "is not empty; parameters go into the query"}
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &parameterError{"query", "is malformed"}
	}
	delete(query, "pretty")
	p := make(parameters, len(query))
	for name, values := range query {
		switch value := values[0]; {
		case name == "":
			return nil, &parameterError{"query", "has a value without a name"}
		case !slices.Contains(known, name):
			return nil, &parameterError{shortly(name), "is unknown; known are " + strings.Join(slices.Concat(known, []string{"pretty"}), ", ")}
		case len(values) > 1:
			return nil, &parameterError{name, "is given more than once"}
		case value == "":
			return nil, &parameterError{name, "is empty; leave it out"}
		case !storable(value):
			return nil, &parameterError{name, "is not UTF-8, or contains a NUL"}
		default:
			p[name] = value
		}
	}
	return p, nil
}

// shortly returns the beginning of a text that a client sent, for an error that quotes it.
func shortly(text string) string { return fmt.Sprintf("%.40s", text) }

// storable reports whether every database accepts the text as a value.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func (p parameters) limit() (int, error) {
	text, given := p["limit"]
	if !given {
		return DefaultAdminLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxAdminLimit {
		return 0, &parameterError{"limit", fmt.Sprintf("is %.40q; it must be a number from 1 to %d", text, MaxAdminLimit)}
	}
	return n, nil
}

// length checks the length of a text.
func (p parameters) length(name string, limit int) error {
	if n := utf8.RuneCountInString(p[name]); n > limit {
		return &parameterError{name, fmt.Sprintf("is %d characters long; the limit is %d", n, limit)}
	}
	return nil
}

func (p parameters) filter() (outbox.DeadFilter, error) {
	since, until, err := p.times()
	return outbox.DeadFilter{
		EventType: outbox.EventType(p["event_type"]), AggregateType: outbox.AggregateType(p["aggregate_type"]),
		AggregateID: p["aggregate_id"], TenantID: p["tenant_id"], Group: p["group"], Since: since, Until: until,
	}, err
}

// filters reports whether there is a parameter that selects dead letters.
func (p parameters) filters() bool {
	return slices.ContainsFunc(filterParameters, func(name string) bool { return p[name] != "" })
}

// target returns the filter for [AuditEntry].Target.
func (p parameters) target() string {
	var given []string
	for _, name := range filterParameters {
		switch {
		case p[name] == "":
		case name == "tenant_id": // the tenant stays out of logs
			given = append(given, name+"=…")
		default:
			given = append(given, name+"="+url.QueryEscape(p[name]))
		}
	}
	if given == nil {
		return "all"
	}
	return strings.Join(given, "&")
}

func (p parameters) times() (since, until time.Time, err error) {
	if since, err = p.time("since"); err != nil {
		return since, until, err
	}
	if until, err = p.time("until"); err != nil {
		return since, until, err
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, &parameterError{"until", "is not after since"}
	}
	return since, until, nil
}

func (p parameters) time(name string) (time.Time, error) {
	text, given := p[name]
	if !given {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, &parameterError{name, fmt.Sprintf("is %.40q; it must be a time like 2006-01-02T15:04:05Z (a + in it is written %%2B)", text)}
	}
	if !storableTime(t) {
		return time.Time{}, &parameterError{name, fmt.Sprintf("is %.40q; the year must be from 1000 to 9999", text)}
	}
	return t.UTC(), nil
}

// storableTime reports whether every database accepts the time.
func storableTime(t time.Time) bool { return t.UTC().Year() >= 1000 && t.UTC().Year() <= 9999 }

// idOf returns the event id, which is the last segment of the path. It does not ask the router,
// because not every router unescapes its parameters. An impossible id is not found.
func idOf(escapedPath string) (string, error) {
	id, err := url.PathUnescape(escapedPath[strings.LastIndexByte(escapedPath, '/')+1:])
	if err != nil || id == "" || utf8.RuneCountInString(id) > 36 || !storable(id) {
		return "", outbox.ErrNotFound
	}
	return id, nil
}

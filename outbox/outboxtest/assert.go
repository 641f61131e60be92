package outboxtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/internal/jsontext"
)

// Event is the expectation of an assertion. Zero fields are not compared.
type Event struct {
	Type        outbox.EventType
	Aggregate   outbox.AggregateType
	AggregateID string
	TenantID    string
	// Headers must be among the event's headers.
	Headers map[string]string
	// Payload is compared as JSON, ignoring key order and spaces: an
	// [outbox.Payload] or a json.RawMessage is JSON text, anything else is
	// marshalled. Bytes, of [outbox.Bytes] or of a topic with a binary codec, are
	// compared with their content type.
	Payload any
}

// Emitter returns the events for an assertion: [Recorder] returns the committed events, [Store] the
// events with visible rows, oldest first, [Scope] the events that were written into a Store in the
// transaction and not rolled back.
type Emitter interface {
	Emitted() []outbox.Envelope
}

// AssertEmitted fails the test unless exactly these events were emitted, in this order, and shows
// the differences. AssertEmitted reports whether the events match.
func AssertEmitted(t testing.TB, from Emitter, want ...Event) bool {
	t.Helper()
	return assertEvents(t, "emitted", from.Emitted(), want)
}

// AssertNothingEmitted is [AssertEmitted] without events.
func AssertNothingEmitted(t testing.TB, from Emitter) bool {
	t.Helper()
	return assertEvents(t, "emitted", from.Emitted(), nil)
}

// AssertPending fails the test unless exactly these events wait in a store, in memory or on a
// database, to be delivered now or later: the NEW and RETRY rows without a lease. The events are in
// the order of due times, which without delays is the order of writing.
func AssertPending(t testing.TB, store outbox.Store, db outbox.DB, want ...Event) bool {
	t.Helper()
	var got []outbox.Envelope
	q := outbox.PollQuery{Now: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), Limit: 1}
	for { // one by one: a batch is sorted oldest first, not by due time
		b, err := store.Poll(t.Context(), db, q)
		if err != nil {
			t.Fatalf("reading pending events: %v", err)
		}
		if b.Len() == 0 {
			return assertEvents(t, "pending", got, want)
		}
		for _, row := range b.Undecodable {
			t.Errorf("event %s does not decode: %v", row.EventID, row.Err)
		}
		got = append(got, b.Envelopes...)
		q.After = b.Next
	}
}

func assertEvents(t testing.TB, what string, got []outbox.Envelope, want []Event) bool {
	t.Helper()
	lines, same := diffEvents(got, want)
	if !same {
		t.Errorf("the %s events are not those expected (- expected, + %s):\n%s", what, what, strings.Join(lines, "\n"))
	}
	return same
}

// diffEvents aligns the emitted events with the expected events, as diff does.
func diffEvents(got []outbox.Envelope, want []Event) (lines []string, same bool) {
	// common[i][j] is how many events got[i:] and want[j:] have in common.
	common := make([][]int, len(got)+1)
	for i := range common {
		common[i] = make([]int, len(want)+1)
	}
	for i := len(got) - 1; i >= 0; i-- {
		for j := len(want) - 1; j >= 0; j-- {
			if want[j].matches(got[i]) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	same = true
	for i, j := 0, 0; i < len(got) || j < len(want); {
		switch {
		case i < len(got) && j < len(want) && want[j].matches(got[i]):
			lines = append(lines, "  "+describe(got[i]))
			i, j = i+1, j+1
		case j < len(want) && (i == len(got) || common[i][j+1] >= common[i+1][j]):
			lines = append(lines, "- "+want[j].String())
			j, same = j+1, false
		default:
			lines = append(lines, "+ "+describe(got[i]))
			i, same = i+1, false
		}
	}
	return lines, same
}

// matches reports whether an envelope is the expected event.
func (e Event) matches(env outbox.Envelope) bool {
	for key, value := range e.Headers {
		if got, ok := env.Headers[key]; !ok || got != value {
			return false
		}
	}
	if e.Payload != nil {
		contentType, text, err := e.payload()
		if err != nil || contentType != env.Payload.ContentType() || jsontext.Same(env.Payload.String(), text) != nil {
			return false
		}
	}
	return (e.Type == "" || e.Type == env.EventType) &&
		(e.Aggregate == "" || e.Aggregate == env.AggregateType) &&
		(e.AggregateID == "" || e.AggregateID == env.AggregateID) &&
		(e.TenantID == "" || e.TenantID == env.TenantID)
}

func (e Event) payload() (contentType, text string, err error) {
	switch p := e.Payload.(type) {
	case outbox.Payload:
		return p.ContentType(), p.String(), nil
	case json.RawMessage:
		return outbox.ContentTypeJSON, string(p), nil
	default:
		text, err := json.Marshal(p)
		return outbox.ContentTypeJSON, string(text), err
	}
}

// String shows the fields that are compared.
func (e Event) String() string {
	payload := ""
	if e.Payload != nil {
		contentType, text, err := e.payload()
		if err != nil {
			text = fmt.Sprintf("(a payload that cannot be marshalled: %v)", err)
		}
		payload = typed(contentType, text)
	}
	return line(orStar(string(e.Aggregate)), orStar(string(e.Type)), orStar(e.AggregateID), e.TenantID, e.Headers, orStar(payload))
}

func describe(env outbox.Envelope) string {
	return line(string(env.AggregateType), string(env.EventType), env.AggregateID, env.TenantID, env.Headers, typed(env.Payload.ContentType(), env.Payload.String()))
}

// typed is the text of a payload behind its content type, unless the content type is JSON.
func typed(contentType, text string) string {
	if contentType == outbox.ContentTypeJSON {
		return text
	}
	return contentType + " " + text
}

// line shows an event in one line, with normalized JSON.
func line(aggregate, event, id, tenant string, headers map[string]string, payload string) string {
	if v, err := jsontext.Decode(payload); err == nil {
		if text, err := json.Marshal(v); err == nil {
			payload = string(text)
		}
	}
	parts := []string{aggregate + "/" + event}
	if id != "" {
		parts = append(parts, id)
	}
	if tenant != "" {
		parts = append(parts, "tenant="+tenant)
	}
	if len(headers) > 0 {
		parts = append(parts, fmt.Sprintf("headers=%v", headers))
	}
	return strings.Join(append(parts, jsontext.Shorten(payload)), " ")
}

func orStar(s string) string {
	if s == "" {
		return "*"
	}
	return s
}

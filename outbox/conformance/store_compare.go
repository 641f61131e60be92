package conformance

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/internal/jsontext"
)

// diffEnvelopes says in which fields a stored envelope differs from the sealed envelope. A payload
// is compared as a text.
func diffEnvelopes(got, want outbox.Envelope) []string {
	var diffs []string
	add := func(field string, got, want any) {
		diffs = append(diffs, fmt.Sprintf("%s is %s, want %s", field, jsontext.Shorten(got), jsontext.Shorten(want)))
	}
	text := func(field, got, want string) {
		if got != want {
			add(field, fmt.Sprintf("%q", got), fmt.Sprintf("%q", want))
		}
	}
	at := func(field string, got, want time.Time) {
		if !got.Equal(want) {
			add(field, got, want)
		} else if got.Location() != time.UTC {
			add(field+"'s location", got.Location(), time.UTC)
		}
	}
	text("EventID", got.EventID, want.EventID)
	text("EventType", string(got.EventType), string(want.EventType))
	text("AggregateType", string(got.AggregateType), string(want.AggregateType))
	text("AggregateID", got.AggregateID, want.AggregateID)
	text("TenantID", got.TenantID, want.TenantID)
	if !maps.Equal(got.Headers, want.Headers) {
		add("Headers", got.Headers, want.Headers)
	} else if want.Headers == nil && got.Headers != nil {
		add("Headers", "an empty map", "nil")
	}
	text("Payload", got.Payload.String(), want.Payload.String())
	text("Payload's content type", got.Payload.ContentType(), want.Payload.ContentType())
	at("OccurredAt", got.OccurredAt, want.OccurredAt)
	at("AvailableAt", got.AvailableAt, want.AvailableAt)
	if got.DeliverAfter != 0 {
		add("DeliverAfter", got.DeliverAfter, time.Duration(0))
	}
	if got.Attempts != want.Attempts {
		add("Attempts", got.Attempts, want.Attempts)
	}
	return diffs
}

// mentions fails the test unless the error's text contains all parts.
func (s *storeSuite) mentions(err error, parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			s.t.Errorf("the error does not contain %q: %v", part, err)
		}
	}
}

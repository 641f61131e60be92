package outboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// diffEnvelopes says in which fields a stored envelope differs from the sealed
// one. Payloads are compared as JSON, for databases may rewrite the text.
func diffEnvelopes(got, want outbox.Envelope) []string {
	var diffs []string
	add := func(field string, got, want any) {
		diffs = append(diffs, fmt.Sprintf("%s is %s, want %s", field, shorten(got), shorten(want)))
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
	if err := sameJSON(got.Payload.String(), want.Payload.String()); err != nil {
		diffs = append(diffs, "Payload: "+err.Error())
	}
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

// shorten keeps a failure readable when a value is long.
func shorten(v any) string {
	const limit = 400
	s := fmt.Sprint(v)
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:limit], ""), len(s))
}

// sameJSON says how two JSON texts differ in meaning: key order, space and the
// way a number or a character is written do not count.
func sameJSON(got, want string) error {
	if got == want {
		return nil
	}
	g, err := decodeJSON(got)
	if err != nil {
		return fmt.Errorf("%s is not JSON: %w", shorten(got), err)
	}
	w, err := decodeJSON(want)
	if err != nil {
		return fmt.Errorf("the expected %s is not JSON: %w", shorten(want), err)
	}
	if !reflect.DeepEqual(g, w) {
		return fmt.Errorf("it is %s, want %s", shorten(got), shorten(want))
	}
	return nil
}

func decodeJSON(text string) (any, error) {
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return normalNumbers(v), nil
}

// normalNumbers writes every number in one way.
func normalNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = normalNumbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = normalNumbers(value)
		}
	case json.Number:
		// SetString would take its time over an exponent of many digits.
		if len(v) < 64 && !strings.ContainsAny(string(v), "eE") {
			if r, ok := new(big.Rat).SetString(string(v)); ok {
				return json.Number(r.RatString())
			}
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return v
}

// mentions fails the test unless the error's text holds all of the parts.
func (s *storeSuite) mentions(err error, parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			s.t.Errorf("the error does not tell %q: %v", part, err)
		}
	}
}

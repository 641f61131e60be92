// Package logread has the parts that the readers of a database's log share: a row of the log becomes an
// event, events are published in their order, and a reader that fails begins again. The package knows no
// database.
package logread

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Event is an event of the log. Err says why the row cannot be read.
type Event struct {
	Env      outbox.Envelope
	Err      error
	attempts int
}

// Size is how many bytes the event takes in a batch.
func (e *Event) Size() int {
	n := len(e.Env.Payload.String())
	for key, value := range e.Env.Headers {
		n += len(key) + len(value)
	}
	return n
}

// Row is a row as the log has it.
type Row struct {
	env                         outbox.Envelope
	createdAt, headers, payload string
	hasID, hasPayload, hasTyped bool
}

// Setter puts the value of a column into a row.
type Setter func(r *Row, value string)

// Setters are the columns that make an envelope. The setter of a column is not called for NULL.
var Setters = map[string]Setter{
	"event_id":       func(r *Row, v string) { r.env.EventID, r.hasID = v, true },
	"event_type":     func(r *Row, v string) { r.env.EventType, r.hasTyped = outbox.EventType(v), true },
	"aggregate_type": func(r *Row, v string) { r.env.AggregateType = outbox.AggregateType(v) },
	"aggregate_id":   func(r *Row, v string) { r.env.AggregateID = v },
	"tenant_id":      func(r *Row, v string) { r.env.TenantID = v },
	"payload":        func(r *Row, v string) { r.payload, r.hasPayload = v, true },
	"headers":        func(r *Row, v string) { r.headers = v },
	"created_at":     func(r *Row, v string) { r.createdAt = v },
}

// Columns are the names of the columns that make an envelope, for a SELECT.
const Columns = "event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, created_at"

// Event makes an event of the row. layout is how the database writes created_at.
func (r *Row) Event(layout string) Event {
	event := Event{Env: r.env}
	event.Err = r.read(&event.Env, layout)
	return event
}

// read sets the fields of env that are not texts.
func (r *Row) read(env *outbox.Envelope, layout string) (err error) {
	if env.AggregateType == "" {
		env.AggregateType = outbox.Global
	}
	switch {
	case !r.hasID || r.env.EventID == "":
		return errors.New("event_id is NULL or empty")
	case !r.hasTyped:
		return errors.New("event_type is NULL")
	case !r.hasPayload:
		return errors.New("payload is NULL")
	}
	if env.OccurredAt, err = time.Parse(layout, r.createdAt); err != nil {
		return errors.New("created_at is no time between the years 1 and 9999")
	}
	env.OccurredAt = env.OccurredAt.UTC()
	env.AvailableAt = env.OccurredAt
	var headers map[string]string
	if r.headers != "" && json.Unmarshal([]byte(r.headers), &headers) != nil {
		err = errors.New("headers are not a flat object of strings")
	}
	return errors.Join(err, outbox.ReadStored(env, headers, r.payload))
}

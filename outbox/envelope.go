package outbox

import (
	"fmt"
	"log/slog"
	"time"
)

// EventType names what happened, such as "OrderPlaced". Declare constants of it
// for type safety; a plain string literal works too. At most 128 characters.
type EventType string

// AggregateType names the kind of thing an event happened to, such as "Order".
// At most 64 characters.
type AggregateType string

// Global is the aggregate type of an event that names none.
const Global AggregateType = "__GLOBAL__"

// Limits of an envelope's fields. Lengths are in characters, the payload's and
// the headers' in bytes of UTF-8. Sealing refuses anything longer; nothing is ever cut.
const (
	MaxEventIDLength       = 36
	MaxEventTypeLength     = 128
	MaxAggregateTypeLength = 64
	MaxAggregateIDLength   = 128
	MaxTenantIDLength      = 64
	MaxPayloadBytes        = 1 << 20
	MaxHeadersBytes        = 64 << 10 // all keys and values
)

// Envelope is one event: what is written to the outbox table and what a
// listener gets. It is a plain value: [Writer.Write] seals a copy of it and
// never keeps or changes yours. EventType and Payload are required.
type Envelope struct {
	// EventID identifies the event everywhere; consumers deduplicate by it.
	// Defaults to a ULID that is monotonic within the process.
	EventID string
	// EventType is required.
	EventType EventType
	// AggregateType defaults to [Global].
	AggregateType AggregateType
	// AggregateID names the one thing that the event happened to. May be empty.
	AggregateID string
	// TenantID is stored and delivered. [ClaimOptions].TenantsInTurn reads it. May be
	// empty.
	TenantID string
	// Headers travel beside the payload. Keys are not empty and do not begin with
	// [ReservedHeaderPrefix]; all keys and values together have at most 65,536 bytes.
	// The interceptors and the listener of one delivery share the map: do not change it.
	Headers map[string]string
	// Payload is JSON text made by [JSON] or [RawJSON]. Required; at most
	// 1,048,576 bytes.
	Payload Payload
	// OccurredAt is when the event happened, kept in UTC and cut to
	// microseconds. Defaults to now.
	OccurredAt time.Time
	// AvailableAt is the earliest time of delivery; not before OccurredAt.
	// Excludes DeliverAfter. Defaults to OccurredAt, which is at once.
	AvailableAt time.Time
	// DeliverAfter delays the delivery, counted from OccurredAt. Positive.
	// Sealing turns it into AvailableAt. Excludes AvailableAt.
	DeliverAfter time.Duration
	// Attempts is the number of failed deliveries so far. It is filled for
	// listeners and ignored when writing.
	Attempts int
}

// IsDelayed reports whether the event is to be delivered strictly after it
// occurred. An event with failed attempts is never delayed, even if its retry is
// due later.
func (e Envelope) IsDelayed() bool {
	if e.Attempts > 0 {
		return false
	}
	return e.DeliverAfter > 0 || e.AvailableAt.After(e.OccurredAt) && !e.OccurredAt.IsZero()
}

// String shows the id, the types, the aggregate and the times; never the
// payload, the headers or the tenant.
func (e Envelope) String() string {
	return fmt.Sprintf("Envelope{EventID:%s EventType:%s AggregateType:%s AggregateID:%s OccurredAt:%s AvailableAt:%s Attempts:%d}",
		e.EventID, e.EventType, e.AggregateType, e.AggregateID,
		formatTime(e.OccurredAt), formatTime(e.AvailableAt), e.Attempts)
}

// GoString is [Envelope.String], so that %#v keeps the payload out of logs too.
func (e Envelope) GoString() string { return e.String() }

// LogValue implements [slog.LogValuer] with the fields of [Envelope.String].
func (e Envelope) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String(logKeyEventID, e.EventID),
		slog.String(logKeyEventType, string(e.EventType)),
		slog.String(logKeyAggregateType, string(e.AggregateType)),
		slog.String(logKeyAggregateID, e.AggregateID),
		slog.Time(logKeyOccurredAt, e.OccurredAt),
		slog.Time(logKeyAvailableAt, e.AvailableAt),
		slog.Int(logKeyAttempts, e.Attempts),
	)
}

// Decode unmarshals the payload of env into a new T, with the codec that the
// payload came with.
func Decode[T any](env Envelope) (T, error) {
	var v T
	if err := env.Payload.Decode(&v); err != nil {
		return v, fmt.Errorf("outbox: decoding event %s (%s/%s): %w", env.EventID, env.AggregateType, env.EventType, err)
	}
	return v, nil
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

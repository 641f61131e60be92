package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox/internal/jsonvalid"
	"github.com/outboxkit/outbox-go/outbox/internal/ulid"
)

// EventType names what happened, such as "OrderPlaced". Declare constants of this
// type for type safety; a plain string literal works too. At most 128 characters.
type EventType string

// AggregateType names the kind of thing an event happened to, such as "Order".
// At most 64 characters.
type AggregateType string

// Global is the aggregate type of an event that names no aggregate type.
const Global AggregateType = "__GLOBAL__"

// Limits of an envelope's fields. Lengths are in characters, the payload's and
// the headers' in bytes of UTF-8. Sealing refuses anything longer; nothing is ever cut.
const (
	MaxEventIDLength       = 36
	MaxEventTypeLength     = 128
	MaxAggregateTypeLength = 64
	MaxAggregateIDLength   = 128
	MaxTenantIDLength      = 64
	MaxUniqueKeyLength     = 128
	MaxPayloadBytes        = 1 << 20
	MaxHeadersBytes        = 64 << 10 // all keys and values
)

// Envelope is an event, as it is written to the outbox table and as a listener
// gets it. An envelope is a plain value: [Writer.Write] seals a copy of it and
// never keeps or changes yours. EventType and Payload are required.
type Envelope struct {
	// EventID identifies the event everywhere; consumers deduplicate by it.
	// Defaults to a ULID that is monotonic within the process.
	EventID string
	// EventType is required.
	EventType EventType
	// AggregateType defaults to [Global].
	AggregateType AggregateType
	// AggregateID names the thing that the event happened to. May be empty.
	AggregateID string
	// TenantID is stored and delivered. [ClaimOptions].TenantsInTurn reads it. May be
	// empty.
	TenantID string
	// Headers travel beside the payload. Keys are not empty and do not begin with
	// "outbox-"; all keys and values together have at most 65,536 bytes.
	// The interceptors and the listener of a delivery share the map: do not change it.
	Headers map[string]string
	// Payload is JSON text made by [JSON] or [RawJSON], or bytes made by [Bytes]. Required; at
	// most 1,048,576 bytes.
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
	// UniqueKey lets a single event with this key wait at a time: if a NEW or RETRY event of the same
	// types has the key, the event is not written, and [Writer.Write] returns the id of the event
	// that has the key. Keys are compared byte by byte. At most 128 characters. UniqueKey is for
	// writing only: listeners do not get the key. The store needs an option for the key, such as
	// sqlstore.WithUniqueIndex. May be empty.
	UniqueKey string
	// KeepLatest makes the state of this event the one that is delivered, instead of the state of the
	// event that has the UniqueKey, which is required. If that event waits (see [Waiting]), its payload,
	// headers and AvailableAt become those of this event, and [Writer.Write] returns its id. If a process
	// has that event in hand or may have, that event loses the key, and this event is written.
	// This event waits, too: AvailableAt is at least a microsecond after OccurredAt and after now, so the
	// poller delivers the event. KeepLatest is for writing only.
	KeepLatest bool
	// Attempts is the number of failed deliveries so far. Attempts is filled for
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

// EventKind is the pair of types by which listeners, limits, pauses and metrics
// distinguish events.
type EventKind struct {
	AggregateType AggregateType
	EventType     EventType
	// Listener is set only in calls of [Metrics] and in [DeadGroup], for the row of a single
	// listener of an event with several listeners; see [Named].
	Listener string
}

// String is the aggregate type and the event type, with a slash between them.
func (k EventKind) String() string { return fmt.Sprintf("%s/%s", k.AggregateType, k.EventType) }

// pair is the kind without a listener.
func (k EventKind) pair() EventKind {
	return EventKind{AggregateType: k.AggregateType, EventType: k.EventType}
}

func (k EventKind) orGlobal() EventKind {
	k.AggregateType = orGlobal(k.AggregateType)
	return k
}

func (k EventKind) validate(v *validator) {
	v.text("AggregateType", string(k.AggregateType), MaxAggregateTypeLength)
	v.text("EventType", string(k.EventType), MaxEventTypeLength)
	if k.EventType == "" {
		v.add("EventType", "is required")
	}
	if k.Listener != "" {
		v.add("Listener", fmt.Sprintf("is %q; leave it empty: rules and pauses of a kind are for all of its listeners", k.Listener))
	}
}

func kindOf(env *Envelope) EventKind {
	return EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
}

func eventIDs(envs []Envelope) []string {
	ids := make([]string, len(envs))
	for i := range envs {
		ids[i] = envs[i].EventID
	}
	return ids
}

// reservedHeaderPrefix begins the keys of headers that only the outbox writes.
const reservedHeaderPrefix = "outbox-"

// The headers that only rows have. Listeners and interceptors do not see them.
const (
	// HeaderListener names the listener that a row is for, if an event has several.
	HeaderListener = reservedHeaderPrefix + "listener"
	// HeaderEventID is the id that listeners see in place of the row's id.
	HeaderEventID = reservedHeaderPrefix + "event-id"
	// HeaderContentType is the content type of a payload that is not JSON.
	HeaderContentType = reservedHeaderPrefix + "content-type"
	// HeaderVersion is the version of a payload's format, if it is not 1; see [Payload.Version].
	HeaderVersion = reservedHeaderPrefix + "version"
)

// The years that every database can store in a column of microseconds.
const (
	minYear = 1000
	maxYear = 9999
)

var maxTime = time.Date(maxYear, 12, 31, 23, 59, 59, 999_999_000, time.UTC)

// Validate reports everything that Write would refuse, each as a [FieldError]
// that is [ErrInvalidEnvelope]. A database may have further limits, which only
// Write knows.
func (e Envelope) Validate() error {
	return e.seal(time.Now())
}

// seal makes e the envelope that is stored and delivered: checked, with
// id and times filled in, in UTC, cut to microseconds, and with copies of the strings and of
// the headers. Sealing a sealed envelope changes nothing.
func (e *Envelope) seal(now time.Time) error {
	v := validator{what: "Envelope"}
	v.text("EventID", e.EventID, MaxEventIDLength)
	if e.EventType == "" {
		v.add("EventType", "is required")
	}
	v.text("EventType", string(e.EventType), MaxEventTypeLength)
	v.text("AggregateType", string(e.AggregateType), MaxAggregateTypeLength)
	v.text("AggregateID", e.AggregateID, MaxAggregateIDLength)
	v.text("TenantID", e.TenantID, MaxTenantIDLength)
	v.text("UniqueKey", e.UniqueKey, MaxUniqueKeyLength)
	if e.KeepLatest && e.UniqueKey == "" {
		v.add("KeepLatest", "needs a UniqueKey, which says whose latest state is kept")
	}
	v.headers(e.Headers)
	v.payload(&e.Payload, e.EventType)
	e.sealTimes(&v, now)
	if err := v.err(); err != nil {
		return err
	}
	e.own()
	if e.EventID == "" {
		e.EventID = ulid.New(now)
	}
	e.AggregateType = orGlobal(e.AggregateType)
	e.Attempts = 0
	return nil
}

// A row is postponed if its available_at is after its created_at: its event was delayed, or tried,
// deferred or replayed before. A transaction may take a postponed row back while the row has no lease
// (see [Store].TakeBack), so in every mode a process leases a postponed row before it delivers the row.
// A row that is due at once may be in hand of a process although it has no lease, and stays due at once
// until an outcome, a replay or a takeover changes it.

// isPostponed reports whether the row of a sealed envelope is postponed.
func (e *Envelope) isPostponed() bool { return e.AvailableAt.After(e.OccurredAt) }

// own replaces the strings by copies in one piece of memory. An event may wait for its listener longer
// than the memory of its strings lives: frameworks such as Fiber give a handler strings whose memory the
// next request uses.
func (e *Envelope) own() {
	texts := [...]*string{&e.EventID, (*string)(&e.EventType), (*string)(&e.AggregateType), &e.AggregateID, &e.TenantID, &e.UniqueKey}
	size := 0
	for _, text := range texts {
		size += len(*text)
	}
	for key, value := range e.Headers {
		size += len(key) + len(value)
	}
	var memory strings.Builder
	memory.Grow(size)
	keep := func(text string) string {
		from := memory.Len()
		memory.WriteString(text)
		return memory.String()[from:]
	}
	for _, text := range texts {
		*text = keep(*text)
	}
	given := e.Headers
	if e.Headers = nil; len(given) > 0 {
		e.Headers = make(map[string]string, len(given))
		for key, value := range given {
			e.Headers[keep(key)] = keep(value)
		}
	}
}

func (e *Envelope) sealTimes(v *validator, now time.Time) {
	if e.OccurredAt.IsZero() {
		e.OccurredAt = now
	}
	v.time("OccurredAt", e.OccurredAt)
	switch {
	case e.DeliverAfter < 0:
		v.add("DeliverAfter", fmt.Sprintf("is %s; it must be positive", e.DeliverAfter))
	case e.DeliverAfter > 0 && !e.AvailableAt.IsZero():
		v.add("DeliverAfter", "excludes AvailableAt; set one of them")
	case e.DeliverAfter > 0:
		e.AvailableAt = e.OccurredAt.Add(e.DeliverAfter)
		v.time("DeliverAfter", e.AvailableAt)
	case e.AvailableAt.IsZero():
		e.AvailableAt = e.OccurredAt
	default:
		v.time("AvailableAt", e.AvailableAt)
		if storedTime(e.AvailableAt).Before(storedTime(e.OccurredAt)) {
			v.add("AvailableAt", fmt.Sprintf("is %s before OccurredAt", e.OccurredAt.Sub(e.AvailableAt)))
		}
	}
	e.OccurredAt, e.AvailableAt, e.DeliverAfter = storedTime(e.OccurredAt), storedTime(e.AvailableAt), 0
	if e.KeepLatest { // only a postponed row without a lease can be replaced
		e.notBefore(e.OccurredAt.Add(time.Microsecond))
		e.notBefore(storedTime(now).Add(time.Microsecond))
	}
}

// notBefore makes the event due at a time, unless the event is due later.
func (e *Envelope) notBefore(at time.Time) {
	if e.AvailableAt.Before(at) {
		e.AvailableAt = at
	}
}

// storedTime is t as databases keep it, without a monotonic clock reading.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// dueTime is now + d as a time that can be stored, however long d is.
func dueTime(now time.Time, d time.Duration) time.Time {
	t := storedTime(now.Add(d))
	if t.After(maxTime) {
		return maxTime
	}
	return t
}

func (v *validator) time(field string, t time.Time) {
	if y := t.UTC().Year(); y < minYear || y > maxYear {
		v.add(field, fmt.Sprintf("leads to the year %d; databases store %d to %d", y, minYear, maxYear))
	}
}

func (v *validator) headers(h map[string]string) {
	size := 0
	for key, value := range h {
		size += len(key) + len(value)
	}
	if size > MaxHeadersBytes {
		v.add("Headers", fmt.Sprintf("are %d bytes long; the limit is %d", size, MaxHeadersBytes))
		return
	}
	for key, value := range h {
		if key == "" {
			v.add("Headers", "has an empty key")
			continue
		}
		if strings.HasPrefix(key, reservedHeaderPrefix) {
			v.add("Headers", fmt.Sprintf("has the key %.64q; keys that begin with %q are the outbox's own", key, reservedHeaderPrefix))
			continue
		}
		v.clean("Headers key", key)
		if !isClean(value) {
			v.clean(fmt.Sprintf("Headers[%.64q]", key), value)
		}
	}
}

func (v *validator) payload(p *Payload, eventType EventType) {
	switch n := len(p.data); {
	case p.err != nil:
		v.errs = append(v.errs, fmt.Errorf("%w: %w", &FieldError{Field: v.what + ".Payload", Problem: "cannot be made"}, p.err))
	case p.IsZero():
		v.add("Payload", "is required; make one with outbox.JSON, outbox.RawJSON or outbox.Bytes")
	case n > MaxPayloadBytes:
		v.add("Payload", fmt.Sprintf("is %d bytes long; the limit is %d", n, MaxPayloadBytes))
	case !p.IsJSON():
		v.contentType(p.contentType)
	case !utf8.ValidString(p.data):
		v.add("Payload", fmt.Sprintf("is not valid UTF-8 (%d bytes); outbox.Bytes makes a payload of other data", n))
	case !p.trusted && !jsonvalid.Valid(p.data):
		of := ""
		if eventType != "" {
			of = fmt.Sprintf("of event type %.128q ", eventType)
		}
		v.add("Payload", fmt.Sprintf("%sis not valid JSON (%d bytes; %s)", of, n, syntaxAt(p.data)))
	case hasEscapedNUL(p.data):
		v.add("Payload", `holds a NUL character (\u0000), which databases do not store in JSON`)
	default:
		p.trusted = true // sealing again, after a hook, need not read the payload again
	}
}

// maxContentType is the length of the longest content type, in bytes: of a short string of AMQP.
const maxContentType = 255

// contentType checks the content type of bytes.
func (v *validator) contentType(contentType string) {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case len(contentType) > maxContentType:
		v.add("Payload", fmt.Sprintf("has a content type of %d bytes; the limit is %d", len(contentType), maxContentType))
	case media == ContentTypeJSON:
		v.add("Payload", "of outbox.Bytes has the content type of JSON; make one with outbox.RawJSON")
	case err != nil || !strings.Contains(media, "/") || !isPrintable(contentType):
		v.add("Payload", fmt.Sprintf("has the content type %.64q, which is no MIME type, such as \"application/protobuf\"", contentType))
	}
}

// isPrintable reports whether a text is of printable ASCII, which every protocol carries.
func isPrintable(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// syntaxAt says where a JSON text is wrong, without quoting the text.
func syntaxAt(text string) string {
	var syntax *json.SyntaxError
	if err := json.Unmarshal([]byte(text), new(json.RawMessage)); errors.As(err, &syntax) {
		return fmt.Sprintf("the error is at offset %d", syntax.Offset)
	}
	return "it holds no value"
}

// hasEscapedNUL finds \u0000 in valid JSON text; an escaped backslash before
// u0000 is not an escaped NUL.
func hasEscapedNUL(s string) bool {
	for {
		i := strings.Index(s, `\u0000`)
		if i < 0 {
			return false
		}
		backslashes := 0
		for j := i - 1; j >= 0 && s[j] == '\\'; j-- {
			backslashes++
		}
		if backslashes%2 == 0 {
			return true
		}
		s = s[i+2:]
	}
}

func orGlobal(a AggregateType) AggregateType {
	if a == "" {
		return Global
	}
	return a
}

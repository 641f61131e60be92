package outbox

import (
	"crypto/sha256"
	"encoding/base32"
	"maps"
)

// ReservedHeaderPrefix begins the keys of headers that only the outbox writes.
const ReservedHeaderPrefix = "outbox-"

// The headers that only rows have. Listeners and interceptors do not see them.
const (
	// HeaderListener names the listener that a row is for, if an event has several.
	HeaderListener = ReservedHeaderPrefix + "listener"
	// HeaderEventID is the id that listeners see in place of the row's.
	HeaderEventID = ReservedHeaderPrefix + "event-id"
	// HeaderContentType is the content type of a payload that is not JSON.
	HeaderContentType = ReservedHeaderPrefix + "content-type"
)

// listenerRowID is the id of a row for one of an event's listeners. It is always the
// same, so that one event never has two rows for a listener.
func listenerRowID(eventID, listener string) string {
	sum := sha256.Sum256([]byte(eventID + "\x00" + listener)) // neither contains a NUL
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20])
}

// rowFor is the envelope of a row for one of an event's listeners.
func rowFor(env *Envelope, listener string) *Envelope {
	row := *env
	row.EventID = listenerRowID(env.EventID, listener)
	row.Headers = make(map[string]string, len(env.Headers)+2)
	maps.Copy(row.Headers, env.Headers)
	row.Headers[HeaderListener], row.Headers[HeaderEventID] = listener, env.EventID
	return &row
}

// originalOf is the event of a row as listeners see it, and the listener that the row
// is for; empty: all of them.
func originalOf(row *Envelope) (env Envelope, listener string) {
	env = *row
	if listener = env.Headers[HeaderListener]; listener == "" {
		return env, ""
	}
	env.EventID = env.Headers[HeaderEventID]
	env.Headers = maps.Clone(env.Headers)
	delete(env.Headers, HeaderListener)
	delete(env.Headers, HeaderEventID)
	if len(env.Headers) == 0 {
		env.Headers = nil
	}
	return env, listener
}

// only is the one of several listeners that a row is for, and what it gets.
type only struct {
	listener string
	event    *Envelope
}

// open looks for the listener that a row is for.
func (d *delivery) open() {
	if d.env.Headers[HeaderListener] != "" {
		env, listener := originalOf(d.env)
		d.only = &only{listener, &env}
	}
}

// event is what listeners get.
func (d *delivery) event() *Envelope {
	if d.only != nil {
		return d.only.event
	}
	return d.env
}

// listener is the name of the one that the row is for; empty: all.
func (d *delivery) listener() string {
	if d.only != nil {
		return d.only.listener
	}
	return ""
}

// kind is that of the delivery's metrics.
func (d *delivery) kind() EventKind {
	kind := kindOf(d.env)
	kind.Listener = d.listener()
	return kind
}

// rows are those that a split event leaves.
func (d *delivery) rows() []*delivery {
	if d.answers != nil {
		return d.answers.rows
	}
	return nil
}

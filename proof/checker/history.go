// Package checker decides whether a run of the outbox kept its promises. A run leaves a history:
// the logs of its processes, and the contents of its tables at the end. [Check] holds the history
// against the [Rules].
package checker

import (
	"crypto/sha256"
	"encoding/base32"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// History is the history of a run.
type History struct {
	Promise Promise
	// Records are the records of all processes and of the run itself, in any order.
	Records []Record
	// Orders are the business transactions whose row stands at the end, by Tx. These rows are the
	// truth about which transactions committed.
	Orders map[string]bool
	// Rows are the rows of the outbox table at the end; see [TargetOf].
	Rows map[Target]Row
	// Effects counts, for each event and listener that has an effect in the database exactly once,
	// how often the effect stands there.
	Effects map[Target]int
}

// Promise is the promise that the run's configuration makes.
type Promise struct {
	// Mode is single, multi, ordered or by-key.
	Mode string
	// MaxAttempts and Lease are the values of the configuration; zero is the outbox's default. In
	// single and ordered mode the hold is the lease.
	MaxAttempts int
	Lease       time.Duration
	// Workers is how many deliveries a process makes at a time; zero is the outbox's
	// default.
	Workers int
	// Listeners are the names of the listeners of an event type. A type without an entry has a
	// single listener, without a name.
	Listeners map[string][]string
	// Expires is how long after Occurred the events of a type may be delivered; a type without an entry
	// does not expire. DropExpired is true when expired events are deleted.
	Expires     map[string]time.Duration
	DropExpired bool
	// Bounds are how many deliveries of a type all processes make at once, by [outbox.Rules].Fleetwide; a
	// type without an entry has no such bound. KeyBounds are the same for each key of a type.
	Bounds, KeyBounds map[string]int
	// Endless are the event types that have endless attempts.
	Endless map[string]bool
	// Once are the event types whose effect happens exactly once.
	Once map[string]bool
	// DeletesDone is true with OnDone: Delete, and when rows were purged.
	DeletesDone bool
	// SkipDead is true when a DEAD event does not block its key.
	SkipDead bool
	// Spoils is true when rows were made that cannot be decoded.
	Spoils bool
	// Unordered is true when the run stepped clocks, which the order within a key
	// depends on.
	Unordered bool
}

// withDefaults fills in the outbox's defaults.
func (p Promise) withDefaults() Promise {
	if p.Mode == "ordered" {
		p.MaxAttempts, p.SkipDead, p.Workers = 1, true, 1
	}
	if p.Workers == 0 {
		p.Workers = 16
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 10
	}
	if p.held() {
		p.Lease = 8 * time.Second
	} else if p.Lease == 0 {
		p.Lease = 5 * time.Minute
	}
	return p
}

// held reports whether a single process at a time delivers.
func (p Promise) held() bool { return p.Mode == "single" || p.Mode == "ordered" }

// ordered reports whether the events of a key are delivered in their order.
func (p Promise) ordered() bool { return (p.Mode == "by-key" || p.Mode == "ordered") && !p.Unordered }

// listeners are the names of the listeners of an event type.
func (p Promise) listeners(eventType string) []string {
	if names := p.Listeners[eventType]; len(names) > 0 {
		return names
	}
	return []string{""}
}

// Target names an event and a listener of the event. Listener is empty if the listener has no name;
// in [History.Rows] it is also empty for the event's own row.
type Target struct{ Event, Listener string }

func (t Target) String() string {
	if t.Listener == "" {
		return t.Event
	}
	return t.Event + " for " + t.Listener
}

// TargetOf is the target of a row, by the id and the headers of the row.
func TargetOf(eventID string, headers map[string]string) Target {
	if listener := headers[outbox.HeaderListener]; listener != "" {
		return Target{headers[outbox.HeaderEventID], listener}
	}
	return Target{Event: eventID}
}

// rowOf is the id of the separate row that a listener of an event may have; see
// outbox/listeners.go.
func rowOf(t Target) string {
	sum := sha256.Sum256([]byte(t.Event + "\x00" + t.Listener))
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20])
}

// Row is a row of the outbox table.
type Row struct {
	// Status is NEW, RETRY, DONE or DEAD.
	Status    string
	Attempts  int
	LastError string
	// Lease is the lease's name, or empty.
	Lease string
}

// The statuses of a row.
const (
	statusDone = "DONE"
	statusDead = "DEAD"
)

// pending reports whether the row still has to be delivered.
func (r Row) pending() bool { return r.Status != statusDone && r.Status != statusDead }

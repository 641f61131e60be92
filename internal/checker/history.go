// Package checker decides whether a run of the outbox kept its promises. A run leaves a
// history: the logs of its processes, and what its tables held at the end. [Check] holds
// the history against the rules.
package checker

import "time"

// History is what one run did.
type History struct {
	Promise Promise
	// Records are those of all processes and of the run itself, in any order.
	Records []Record
	// Orders are the business transactions whose row stands at the end, by Tx: the
	// truth about which of them committed.
	Orders map[string]bool
	// Rows are the rows of the outbox table at the end, by event id.
	Rows map[string]Row
	// Effects counts, for each event and listener that has its effect in the database
	// exactly once, how often the effect stands there.
	Effects map[Effect]int
}

// Promise is what the run's configuration promises.
type Promise struct {
	// Mode is single, multi, ordered or by-key.
	Mode string
	// MaxAttempts and Lease are those of the configuration.
	MaxAttempts int
	Lease       time.Duration
	// Listeners are the names of the listeners of an event type; a type without an
	// entry has one without a name.
	Listeners map[string][]string
	// Once are the event types whose effect happens exactly once.
	Once map[string]bool
	// DeletesDone is true with OnDone: Delete, and when rows were purged.
	DeletesDone bool
	// SkipDead is true when a DEAD event does not block its key.
	SkipDead bool
	// Unordered is true when the run stepped clocks, which the order within a key
	// depends on.
	Unordered bool
}

// Row is a row of the outbox table.
type Row struct {
	// Status is NEW, RETRY, DONE or DEAD.
	Status    string
	Attempts  int
	LastError string
	Lease     string
}

// Effect names the effect of one event by one listener.
type Effect struct{ Event, Listener string }

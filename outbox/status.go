package outbox

import "strconv"

// Status is the state of an event's row, as stored.
type Status int

// The states of a row. DONE and DEAD are terminal.
const (
	StatusNew   Status = 0 // written, or deferred by its listener
	StatusDone  Status = 1 // delivered
	StatusRetry Status = 2 // failed, due again at available_at
	StatusDead  Status = 3 // not delivered again unless replayed; see DeadLetters
)

// String is NEW, DONE, RETRY or DEAD.
func (s Status) String() string {
	switch s {
	case StatusNew:
		return "NEW"
	case StatusDone:
		return "DONE"
	case StatusRetry:
		return "RETRY"
	case StatusDead:
		return "DEAD"
	default:
		return "Status(" + strconv.Itoa(int(s)) + ")"
	}
}

// Terminal reports whether the status is DONE or DEAD.
func (s Status) Terminal() bool { return s == StatusDone || s == StatusDead }

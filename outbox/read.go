package outbox

import "time"

// PollQuery says which due rows to read.
type PollQuery struct {
	// Now: rows with available_at at or before it are due.
	Now time.Time
	// CreatedBefore leaves out rows created after it. Zero: no bound.
	CreatedBefore time.Time
	// After continues behind an earlier batch's Next. Zero: from the start.
	After Cursor
	// LockTimeout is the age at which a lease expires, by the database's clock. A lease
	// whose time is as far ahead of that clock, or is no time, has expired too.
	LockTimeout time.Duration
	// Limit is the most rows to read; positive.
	Limit int
	// Except leaves out events of these kinds.
	Except []EventKind
}

// ClaimQuery says which due rows to lease: those that are not leased, and those
// whose lease expired, which get one attempt more. The returned envelopes count it.
type ClaimQuery struct {
	Now           time.Time   // as in PollQuery
	CreatedBefore time.Time   // as in PollQuery
	After         Cursor      // as in PollQuery
	Limit         int         // as in PollQuery
	Except        []EventKind // as in PollQuery
	// EventIDs claims only rows of these events. Empty: of all.
	EventIDs []string
	// Lease is the name that the rows get. No other claim has it.
	Lease string
	// LockTimeout is the age at which a lease expires, by the database's clock. A lease
	// whose time is as far ahead of that clock, or is no time, has expired too.
	LockTimeout time.Duration
	// FreshOnly leaves out rows whose lease expired.
	FreshOnly bool
}

// Cursor is a place in the order of due rows: available_at, created_at, event
// id. The zero value is before all.
type Cursor struct {
	AvailableAt time.Time
	CreatedAt   time.Time
	EventID     string
}

// IsZero reports whether c is the start.
func (c Cursor) IsZero() bool { return c.EventID == "" && c.AvailableAt.IsZero() }

// Batch is what a poll or a claim read. The rows are chosen by due time
// (available_at, created_at, event_id) and returned oldest first (created_at,
// then event id).
type Batch struct {
	Envelopes []Envelope
	// Undecodable are rows that were read and cannot be delivered.
	Undecodable []Undecodable
	// Expired are the events of a poll whose rows are leased, with a lease that
	// expired.
	Expired []string
	// Next is the place behind the last row in the order of due times, or before it.
	// All due rows up to it were read, or were leased or locked.
	Next Cursor
}

// Len is the number of rows that were read.
func (b Batch) Len() int { return len(b.Envelopes) + len(b.Undecodable) + len(b.Expired) }

// Undecodable is a row whose columns do not make an envelope, such as headers
// that are no flat object of strings.
type Undecodable struct {
	EventID string
	Err     error
}

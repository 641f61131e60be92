package outbox

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Errors of writing.
var (
	// ErrNoTransaction: there is no active transaction to write in.
	ErrNoTransaction = errors.New("outbox: no active transaction")
	// ErrForeignTransaction: the transaction does not belong to the writer's data
	// source.
	ErrForeignTransaction = errors.New("outbox: the transaction belongs to another data source")
	// ErrUnmanagedTransaction: the transaction was begun on a pool that is not followed,
	// so the adapter cannot see it commit.
	ErrUnmanagedTransaction = errors.New("outbox: the transaction is not followed")
	// ErrInvalidEnvelope: an envelope breaks a rule; [FieldError] says which.
	ErrInvalidEnvelope = errors.New("outbox: invalid envelope")
	// ErrDuplicateEvent: the table has an event with this id already; [DuplicateEventError] says
	// which id.
	ErrDuplicateEvent = errors.New("outbox: an event with this id exists")
	// ErrOutcomeUnknown: COMMIT was sent, and no definite answer arrived. If the
	// transaction committed, the poller delivers the events.
	ErrOutcomeUnknown = errors.New("outbox: the outcome of the commit is unknown")
)

// Errors of the lifecycle and of operating.
var (
	// ErrStarted: the call is possible only before Start.
	ErrStarted = errors.New("outbox: already started")
	// ErrDraining: the call is not possible while [Outbox.Drain] runs.
	ErrDraining = errors.New("outbox: a Drain is under way")
	// ErrClosed: the outbox was closed.
	ErrClosed = errors.New("outbox: closed")
	// ErrDuplicateListener: the pair of types already has a listener of that name, or
	// a listener of the pair has no name; see [Named].
	ErrDuplicateListener = errors.New("outbox: duplicate listener")
	// ErrUnroutable: no listener is registered for the event.
	ErrUnroutable = errors.New("outbox: unroutable")
	// ErrNewerVersion: the payload's version is newer than the topic's version; see
	// [Topic.WithVersion].
	ErrNewerVersion = errors.New("outbox: the payload is of a newer version")
	// ErrNotFound: there is no such dead letter, or for [Outbox.FindEvent], no such event.
	ErrNotFound = errors.New("outbox: not found")
	// ErrKeyTaken: a dead letter was not replayed, because a pending event has the letter's unique
	// key; [KeyTakenError] says which letter.
	ErrKeyTaken = errors.New("outbox: a pending event has this unique key")
	// ErrLeaseLost: an outcome was refused, because the node no longer holds the
	// event's lease.
	ErrLeaseLost = errors.New("outbox: lease lost")
)

// errReleased is the error of a delivery that ends without an outcome.
var errReleased = errors.New("outbox: this process may not deliver the event any more")

// errExpired is why an event is not delivered any more; see [Rules].Expires.
var errExpired = errors.New("expired")

// errTurn is why an event cannot be completed. A delivery that fails with errTurn has
// no outcome: the event is given back.
var errTurn = errors.New("the outcome of an event before it is not stored yet")

// errGoexit is why a delivery fails whose listener ended the goroutine.
var errGoexit = errors.New("the listener ended its goroutine (runtime.Goexit)")

// FieldError reports a problem of a field of an envelope, a binding or a configuration.
// All problems are reported together: errors.As finds the first problem, and the
// message has all.
type FieldError struct {
	Field   string // such as "Envelope.EventType" or "Config.DB"
	Problem string // such as "is 130 characters long; the limit is 128"
}

// Error is the field and the problem.
func (e *FieldError) Error() string { return "outbox: " + e.Field + " " + e.Problem }

// Is makes errors about an envelope's field match [ErrInvalidEnvelope].
func (e *FieldError) Is(target error) bool {
	return target == ErrInvalidEnvelope && strings.HasPrefix(e.Field, "Envelope.")
}

// DuplicateEventError is the [ErrDuplicateEvent] of an event whose id the caller gave. Nothing was
// written, and the transaction goes on.
type DuplicateEventError struct {
	// EventID is the first id of the call that the table has.
	EventID string
	// EventIDs are the ids of the call that the table has, EventID first, in the order of the call: all of
	// them if the call has at most 1,000 events, else at least those of 1,000 events. Nil if only the first id is
	// known, as after a batch of pgx.
	EventIDs []string
}

// Error has the id.
func (e *DuplicateEventError) Error() string {
	return fmt.Sprintf("outbox: event %q exists already; nothing was written", e.EventID)
}

// Is makes the error match [ErrDuplicateEvent].
func (e *DuplicateEventError) Is(target error) bool { return target == ErrDuplicateEvent }

// KeyTakenError is the [ErrKeyTaken] of dead letters that were not replayed. The letters stay DEAD.
type KeyTakenError struct {
	// EventID is the id of the first of the letters, and Letters is their number.
	EventID string
	Letters int
}

// Error has the number of the letters and the id.
func (e *KeyTakenError) Error() string {
	return fmt.Sprintf("%d dead letters stay dead, %s first: a pending event has their unique key; replay them when that event is delivered", e.Letters, e.EventID)
}

// Is makes the error match [ErrKeyTaken].
func (e *KeyTakenError) Is(target error) bool { return target == ErrKeyTaken }

// and is the error of these letters and of the letters of another error. A nil e has no letters.
func (e *KeyTakenError) and(more *KeyTakenError) *KeyTakenError {
	if e == nil {
		return more
	}
	return &KeyTakenError{EventID: e.EventID, Letters: e.Letters + more.Letters}
}

// PanicError is the error for a panic of a listener or an interceptor. A PanicError
// also replaces an error whose methods panic.
type PanicError struct {
	Value any
	Stack []byte
	at    string // the file and the line; empty when the error was made by hand
}

// Error is the panic's value and place.
func (e *PanicError) Error() string {
	if e.at == "" {
		return fmt.Sprintf("panic: %v", e.Value)
	}
	return fmt.Sprintf("panic at %s: %v", e.at, e.Value)
}

// Unwrap returns the value when the value is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// MaxErrorLength is how many characters of an error are stored.
const MaxErrorLength = 4000

// errorText is the form of a text in last_error: valid UTF-8 without NUL, at most
// MaxErrorLength characters.
func errorText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= MaxErrorLength || utf8.RuneCountInString(s) <= MaxErrorLength {
		return s
	}
	n := 0
	for i := range s {
		if n == MaxErrorLength {
			return s[:i]
		}
		n++
	}
	return s
}

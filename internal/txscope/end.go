package txscope

import (
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// End is how a transaction ended. The zero value is [Unknown].
type End uint8

// The ends.
const (
	// Unknown: COMMIT was sent, or may have been, and no definite answer came.
	Unknown End = iota
	// Committed: the database said so.
	Committed
	// RolledBack: the database said so, or COMMIT was never sent.
	RolledBack
)

// String names the end.
func (e End) String() string {
	switch e {
	case Committed:
		return "committed"
	case RolledBack:
		return "rolled back"
	case Unknown:
	}
	return "unknown"
}

// unknownCause is the cause that callbacks see for an unknown end.
func unknownCause(cause error) error {
	switch {
	case cause == nil:
		return outbox.ErrOutcomeUnknown
	case errors.Is(cause, outbox.ErrOutcomeUnknown):
		return cause
	default:
		return fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, cause)
	}
}

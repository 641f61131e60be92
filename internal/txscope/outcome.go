package txscope

import (
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// Outcome is how a transaction ended. The zero value is [Unknown].
type Outcome uint8

// The outcomes.
const (
	// Unknown: COMMIT was sent, or may have been, and no definite answer came.
	Unknown Outcome = iota
	// Committed: the database said so.
	Committed
	// RolledBack: the database said so, or COMMIT was never sent.
	RolledBack
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Committed:
		return "committed"
	case RolledBack:
		return "rolled back"
	case Unknown:
	}
	return "unknown"
}

// unknownCause is the cause that callbacks see for an unknown outcome.
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

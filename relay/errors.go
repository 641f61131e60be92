package relay

import "errors"

// A [Publisher] wraps its errors with one of these errors, which decides how the event goes on. Any
// other error is a failed delivery: it counts as an attempt, is retried by the outbox's policy, and
// the last attempt makes the event DEAD.
var (
	// ErrUnavailable: the broker cannot be reached, does not answer, has no room, or does
	// not accept the client's credentials. The event is deferred, and no attempt is
	// counted.
	ErrUnavailable = errors.New("the broker is not available")
	// ErrRefused: the broker will never take this message: it is too large, or a name or
	// a header is invalid. The event is DEAD at once.
	ErrRefused = errors.New("the broker refuses the message")
	// ErrUnroutable: the broker has nothing that takes the message, such as a topic or a queue.
	// This is a failed delivery, because an operator may create the topic or queue.
	ErrUnroutable = errors.New("the broker has nothing to route the message to")
)

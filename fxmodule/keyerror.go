package outboxfx

import "fmt"

// KeyError says what is wrong with one key of a configuration. Everything that
// is wrong is reported together: use errors.As for the first and the message for
// all.
type KeyError struct {
	Key     string // such as "dispatcher.worker-count"
	Place   string // "outbox.yaml:3", a variable's name, or empty for a Config made in code
	Problem string // such as "is 0; it must be positive"
}

// Error is the key, its place and the problem.
func (e *KeyError) Error() string {
	if e.Place == "" {
		return e.Key + " " + e.Problem
	}
	return fmt.Sprintf("%s (%s) %s", e.Key, e.Place, e.Problem)
}

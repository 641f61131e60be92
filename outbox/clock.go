package outbox

import "time"

// Clock tells the time. Give one only in tests; timers run on the system's.
type Clock interface {
	Now() time.Time
}

// ClockFunc makes a function a [Clock].
type ClockFunc func() time.Time

// Now calls f.
func (f ClockFunc) Now() time.Time { return f() }

func clockOr(c Clock) Clock {
	if c == nil {
		return ClockFunc(time.Now)
	}
	return c
}

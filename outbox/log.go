package outbox

import (
	"log/slog"
	"time"
)

// The keys of log attributes. Payloads, headers and tenants are never logged.
const (
	logKeyError         = "error"
	logKeyEventID       = "event_id"
	logKeyEventType     = "event_type"
	logKeyAggregateType = "aggregate_type"
	logKeyAggregateID   = "aggregate_id"
	logKeyOccurredAt    = "occurred_at"
	logKeyAvailableAt   = "available_at"
	logKeyAttempts      = "attempts"
	logKeyCount         = "count"
	logKeyDelay         = "delay"
	logKeyHook          = "hook"
	logKeyOwner         = "owner"
	logKeyStack         = "stack"
	logKeyOutcome       = "outcome"
	logKeyLasted        = "lasted"
	logKeyMode          = "mode"
	logKeyTable         = "table"
	logKeyDatabase      = "database"
	logKeyWorkers       = "workers"
	logKeyInterval      = "poll_interval"
	logKeyRetention     = "retention"
	logKeyListener      = "listener"
	logKeyRowID         = "row_id"
	logKeySince         = "since"
	logKeyUntil         = "until"
	logKeyReason        = "reason"
	logKeyBy            = "by"
	logKeyOther         = "other"
	logKeyOtherMode     = "other_mode"
)

// causeLines is how many failures of a cause have a line each in a minute: enough to see
// a few events and their ids.
const causeLines = 10

// durationText is the attribute of a duration: as text, because the JSON handler of slog
// writes a time.Duration as a number of nanoseconds.
func durationText(d time.Duration) string { return d.Round(time.Millisecond).String() }

func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

// Clock tells the time. Set a Clock only in tests; timers use the system clock.
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

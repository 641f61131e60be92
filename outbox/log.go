package outbox

import "log/slog"

// The keys of log attributes. Payloads, headers and tenants are never logged.
const (
	logKeyError         = "error"
	logKeyEventID       = "event_id"
	logKeyEventType     = "event_type"
	logKeyAggregateType = "aggregate_type"
	logKeyAggregateID   = "aggregate_id"
	logKeyAttempts      = "attempts"
	logKeyCount         = "count"
	logKeyDelay         = "delay"
	logKeyDuration      = "duration"
	logKeyOwner         = "owner"
	logKeyStack         = "stack"
	logKeyOutcome       = "outcome"
)

func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

package outbox

import "log/slog"

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
)

func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

// deliveryAttrs are the attributes of a line about a delivery that failed: the
// event's, how often it was tried with this one, why it failed, and where if it
// was a panic.
func deliveryAttrs(o *outcome, attempts int) []any {
	attrs := []any{
		logKeyEventID, o.env.EventID, logKeyEventType, string(o.env.EventType),
		logKeyAggregateType, string(o.env.AggregateType), logKeyAggregateID, o.env.AggregateID,
		logKeyAttempts, attempts, logKeyError, o.mark.Error,
	}
	if o.panicked != nil {
		attrs = append(attrs, logKeyStack, string(o.panicked.Stack))
	}
	return attrs
}

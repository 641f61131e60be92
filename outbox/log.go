package outbox

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/reason"
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

// deliveryAttrs are the attributes of a line about a failed delivery: the event, the attempts
// including this attempt, the reason, the listener and the id of its row if the row is for one of
// several listeners, and the stack of a panic.
func deliveryAttrs(d *delivery, attempts int) []any {
	attrs := []any{
		logKeyEventID, d.event().EventID, logKeyEventType, string(d.env.EventType),
		logKeyAggregateType, string(d.env.AggregateType), logKeyAggregateID, d.env.AggregateID,
		logKeyAttempts, attempts, logKeyError, d.reason,
	}
	if d.only != nil {
		attrs = append(attrs, logKeyListener, d.only.listener, logKeyRowID, d.id())
	}
	if d.panicked != nil {
		attrs = append(attrs, logKeyStack, string(d.panicked.Stack))
	}
	return attrs
}

// causeOfFailure is the kind of event, the listener, and the reason without the parts that differ
// between two events.
func causeOfFailure(d *delivery) string {
	return strings.Join([]string{d.kind().String(), d.listener(), reason.Of(d.reason)}, "\n")
}

func loggerFrom(ctx context.Context) *slog.Logger {
	if c := deliveryOf(ctx); c != nil {
		return c.d.logger()
	}
	return slog.Default()
}

func (d *dispatcher) logger() *slog.Logger { return d.log }

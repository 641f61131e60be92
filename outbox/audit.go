package outbox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox/internal/ulid"
)

// The audit log.
const (
	// AuditRetention is how long an entry of the audit log is kept.
	AuditRetention = 90 * 24 * time.Hour
	// AuditLimit is how many entries are kept: the oldest are deleted first.
	AuditLimit = 10_000
	// DefaultAuditLimit and MaxAuditLimit are for [AuditQuery].Limit.
	DefaultAuditLimit = 50
	MaxAuditLimit     = 500
	maxAuditName      = 256
	maxAuditTarget    = 1000
	auditPatience     = 5 * time.Second
	auditBatch        = 500 // entries that a purge deletes at once
	hiddenTenant      = "tenant_id=…"
)

type operatorKey struct{}

// WithOperator returns a context that names the operator of a change. The calls of [Outbox] and
// [DeadLetters] that pause, resume, replay, delete, restore or purge write an entry of the audit log if their
// context names an operator. Without an operator they write no entry: a program that replays events by
// itself would displace the entries of people.
func WithOperator(ctx context.Context, who Operator) context.Context {
	return context.WithValue(ctx, operatorKey{}, who)
}

// ErrNotRecorded is the error of a change that was made completely, and has no entry in the audit log,
// because the entry could not be stored. Do not repeat the change.
var ErrNotRecorded = errors.New("outbox: the change is done, but it is not recorded in the audit log")

// auditor writes the audit log.
type auditor struct {
	db    DB
	store Store
	clock Clock
}

// record writes the entry of a change that ended with err, and returns err. If the entry cannot be stored,
// the error of a complete change is [ErrNotRecorded], and the error of an incomplete change has the reason
// too.
func (a auditor) record(ctx context.Context, e AuditEntry, err error) error {
	e.Incomplete = e.Incomplete || err != nil
	unrecorded := a.write(ctx, e)
	switch {
	case unrecorded == nil:
		return err
	case err == nil:
		return fmt.Errorf("%w: %w", ErrNotRecorded, unrecorded)
	}
	return fmt.Errorf("%w; the audit log has no entry of it: %w", err, unrecorded)
}

// write stores an entry, in a transaction of its own, if the context names an operator.
func (a auditor) write(ctx context.Context, e AuditEntry) error {
	who, is := ctx.Value(operatorKey{}).(Operator)
	if !is {
		return nil
	}
	now := a.clock.Now()
	e.ID, e.At = ulid.New(now), storedTime(now)
	e.Operator = Operator{singleLine(who.Name, maxAuditName), singleLine(who.From, maxAuditName)}
	e.Target, e.Reason = singleLine(e.Target, maxAuditTarget), singleLine(e.Reason, maxAuditTarget)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	return a.store.RecordChange(ctx, a.db, e, AuditRetention)
}

// pauseTarget names a kind, or a key of the kind.
func pauseTarget(kind EventKind, aggregateID string) string {
	if aggregateID == "" {
		return kind.String()
	}
	return kind.String() + " aggregate_id=" + url.QueryEscape(aggregateID)
}

// untilTarget says when a pause ends by itself; empty: it ends with [Outbox.Resume].
func untilTarget(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return " until=" + until.UTC().Format(time.RFC3339)
}

// target is the filter as a text. The value of the tenant is left out.
func (f DeadFilter) target() string {
	var given []string
	add := func(name, value string) {
		if value != "" {
			given = append(given, name+"="+url.QueryEscape(value))
		}
	}
	add("event_type", string(f.EventType))
	add("aggregate_type", string(f.AggregateType))
	add("aggregate_id", f.AggregateID)
	if f.TenantID != "" {
		given = append(given, hiddenTenant)
	}
	add("group", f.Group)
	for name, t := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !t.IsZero() {
			add(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	slices.Sort(given)
	if n := len(f.EventIDs); n > 0 {
		const most = 20
		text := "event_id=" + strings.Join(f.EventIDs[:min(n, most)], ",")
		if n > most {
			text += " and " + strconv.Itoa(n-most) + " more"
		}
		given = append(given, text)
	}
	if given == nil {
		return "all"
	}
	return strings.ToValidUTF8(strings.Join(given, "&"), string(utf8.RuneError))
}

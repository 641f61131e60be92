package httptx

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
)

// Role is what a user may do: a set of flags. The zero Role may do nothing.
type Role uint8

// The roles. ReadPayloads and Operate include View.
const (
	// View shows counts, lists, and events without their payloads and headers. The errors of
	// listeners are shown.
	View Role = 1
	// ReadPayloads shows payloads and headers.
	ReadPayloads = View | 2
	// Operate replays and deletes dead letters, pauses and resumes kinds of events, purges,
	// and wakes the poller.
	Operate = View | 4
)

// May reports whether the role includes the other role, which must not be zero.
func (r Role) May(other Role) bool { return other != 0 && r&other == other }

// ErrOtherSite is the error of [Access.Enter] for a change that a page of another site sends.
var ErrOtherSite = errors.New("httptx: a page of another site may not send changes; open this site's own page")

// Access says who may see and change an outbox over HTTP: at [Admin], and at the page of
// package dashboard. The zero value refuses every request.
type Access struct {
	// Authorize names the user who sends a request, and returns the user's role. It runs for every
	// request, concurrently. The name goes into the log. Without Authorize every request is
	// refused: a service whose endpoints have their own authentication must return a role here all
	// the same.
	Authorize func(r *http.Request) (user string, role Role)
	// Audit is called after each change, and after the line of the change in the log. Audit gets
	// the values of the request's context, but not its end. Optional.
	Audit func(ctx context.Context, entry AuditEntry)
	// Logger gets a line for each change: at level INFO, or WARN if the change failed. Logger also
	// gets the errors of the database, at level ERROR. Defaults to [slog.Default].
	Logger *slog.Logger
}

// AuditEntry describes a change.
type AuditEntry struct {
	// User is the name that [Access].Authorize returned.
	User string
	// Action is replay, delete, restore, pause, resume, start-replay, stop-replay, continue-replay, purge or wake.
	Action string
	// Outbox is the name that package dashboard knows the outbox by. [Admin] leaves Outbox empty.
	Outbox string
	// Target names the object of the action: "event_id=…", a kind of event, or a filter in the form
	// of a query. The value of tenant_id is left out.
	Target string
	// Count is how many events were changed, also before an error.
	Count int
	// Err is nil when the change succeeded.
	Err error
}

// Enter returns the user who sends a request, and the user's role. The error is [ErrOtherSite], or
// a [CommitError]: like [Admin], Enter first commits the transaction of a [Transaction] middleware
// around it. Enter and [Access.Record] are for packages that serve operators, such as dashboard.
func (a *Access) Enter(r *http.Request) (user string, role Role, err error) {
	if err := leave(r.Context()); err != nil {
		return "", 0, err
	}
	if http.NewCrossOriginProtection().Check(r) != nil {
		return "", 0, ErrOtherSite
	}
	if a.Authorize == nil {
		return "", 0, nil
	}
	user, role = a.Authorize(r)
	return user, role, nil
}

func (a *Access) log() *slog.Logger {
	if a.Logger == nil {
		return slog.Default()
	}
	return a.Logger
}

// Record writes a change to the log, and calls [Access].Audit.
func (a *Access) Record(ctx context.Context, entry AuditEntry) {
	ctx = context.WithoutCancel(ctx)
	level := slog.LevelInfo
	attrs := []slog.Attr{slog.String("user", entry.User), slog.String("action", entry.Action)}
	if entry.Outbox != "" {
		attrs = append(attrs, slog.String("outbox", entry.Outbox))
	}
	attrs = append(attrs, slog.String("target", entry.Target), slog.Int("count", entry.Count))
	if entry.Err != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("error", entry.Err.Error()))
	}
	a.log().LogAttrs(ctx, level, "outbox: an operator's change", attrs...)
	if a.Audit != nil {
		a.Audit(ctx, entry)
	}
}

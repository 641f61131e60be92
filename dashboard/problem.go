package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// problem is an answer to a request that failed.
type problem struct {
	status      int
	Title, Text string
}

func (e *problem) Error() string { return e.Title + ": " + e.Text }

// fail shows an error. The text of a database error goes only to the log: it may contain addresses.
func (p *page) fail(err error) {
	if p.r.Context().Err() != nil {
		return // the client has gone
	}
	shown := problemOf(err)
	if shown.status >= http.StatusInternalServerError && error(shown) != err { //nolint:errorlint // it is the page's own.
		p.dashboard.config.Access.Logger.ErrorContext(p.r.Context(), "outbox: a page of the dashboard failed",
			"outbox", p.Name, "page", p.Here, "error", err.Error())
	}
	start := tags(`<a href="{}">Start</a>`, p.Root)
	if p.Name != "" {
		start = `<a href="./">Overview</a>`
	}
	_ = p.show(shown.status, shown.Title, tags(`<p role="alert" class="note">{}</p>
<p>{}</p>
`, shown.Text, start))
}

func problemOf(err error) *problem {
	var own *problem
	var input *inputError
	var field *outbox.FieldError
	var taken *outbox.KeyTakenError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &input):
		return &problem{http.StatusBadRequest, "Not understood", input.Error()}
	case errors.As(err, &taken):
		return &problem{http.StatusConflict, "Not all replayed", taken.Error() + "."}
	case errors.Is(err, outbox.ErrNotFound):
		return &problem{http.StatusNotFound, "Not found", "There is no event with this id. It may have been purged."}
	case errors.As(err, &field) && (field.Field == "EventQuery.After" || field.Field == "DeadQuery.After"):
		return &problem{http.StatusBadRequest, "Not understood", (&inputError{"after", "is not the place of a page; start from the first page"}).Error()}
	case errors.As(err, &field) && field.Field == "EventFilter.DeletionID":
		return &problem{http.StatusBadRequest, "Not understood", (&inputError{"deletion", field.Problem}).Error()}
	case errors.As(err, &field):
		return &problem{http.StatusConflict, "Not possible", field.Error()}
	case older(err):
		return &problem{http.StatusServiceUnavailable, "The tables are older than this build", "A column or the control table is missing. Migrate the tables with “outbox schema migrate”, or with your migrations."}
	case noTable(err):
		return &problem{http.StatusServiceUnavailable, "The table is missing", "The database has no table for this outbox. Create it with “outbox schema create”, with store.CreateSchema(ctx, db), or with your migrations. Until then the service cannot write events."}
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{http.StatusServiceUnavailable, "The database is slow or away", "It did not answer in time. Reload the page; if that does not help, look at the database and at the log of this service."}
	default:
		return &problem{http.StatusServiceUnavailable, "The database returned an error", "The log of this service has its text. If the database is away, this page works again when it is back: reload it."}
	}
}

// actionProblem says why an action failed.
func actionProblem(err error) string {
	if shown := problemOf(err); shown.status < http.StatusInternalServerError {
		return shown.Error()
	} else if older(err) || noTable(err) {
		return shown.Error()
	}
	return "Not carried out, or only in part (see the count). Start it again when the database is back. The log of this service has the error."
}

// noTable reports whether a table is missing.
func noTable(err error) bool {
	return sqlerr.HasState(err, "42P01") || sqlerr.HasNumber(err, 1146) || strings.Contains(err.Error(), "no such table")
}

// older reports whether a column is missing, or only the control table.
func older(err error) bool {
	return sqlerr.HasState(err, "42703") || sqlerr.HasNumber(err, 1054) || strings.Contains(err.Error(), "no such column") ||
		noTable(err) && strings.Contains(err.Error(), "_control")
}

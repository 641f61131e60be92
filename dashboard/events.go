package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

// events searches, and lists a page. An id that is given alone, and whole, leads to its event.
func (p *page) events() error {
	in, err := p.query("id", "status", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "error_text", "deletion", "since", "until", "after")
	if err != nil {
		return err
	}
	in = in.trimmed()
	query, err := in.events()
	if isTimeError(err) {
		return p.show(http.StatusBadRequest, "Events", wrong(err)+in.eventsForm())
	}
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	if id := in.get("id"); id != "" && len(in.given("id")) == 0 {
		_, err := p.outbox.FindEvent(ctx, id)
		if err == nil {
			return p.redirect(http.StatusFound, string(link("event", "id", id)))
		}
		if !errors.Is(err, outbox.ErrNotFound) {
			return err
		}
	}
	found, err := p.outbox.FindEvents(ctx, query)
	if err != nil {
		return err
	}
	pauses, err := p.outbox.Paused(ctx)
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "Events", in.eventsBody(&found, pauses))
}

// eventsBody lists a page of events.
func (in input) eventsBody(found *outbox.Page[outbox.EventRow], pauses []outbox.Pause) markup {
	rows, next := found.Rows, found.Next
	partly := next != "" && len(rows) < outbox.DefaultFindLimit
	failed := slices.ContainsFunc(rows, func(row outbox.EventRow) bool { return row.LastError != "" })
	leased := slices.ContainsFunc(rows, func(row outbox.EventRow) bool { return row.Lease != "" })
	var list markup
	switch {
	case len(rows) > 0:
		list = tags(`<div class="wide"><table>
<thead><tr><th scope="col">Id</th><th scope="col">Status</th><th scope="col">Kind</th>{}{}<th scope="col">Aggregate id</th><th scope="col">Tenant</th><th scope="col">Occurred</th><th scope="col">Ended / due</th><th scope="col">Failed attempts</th></tr></thead>
<tbody>{}</tbody></table></div>
`, when(failed, `<th scope="col">Last error</th>`), when(leased, `<th scope="col">Leased by</th>`),
			each(rows, func(row outbox.EventRow) markup { return eventRow(row, pauseOf(&row, pauses), failed, leased) }))
	case !partly:
		list = `<p class="none">There is no such event.</p>`
	}
	following := in.given("after")
	following.Set("after", next)
	nextPage := when(next != "", `<p><a href="{}" rel="next">{}</a></p>`, linkTo("events", following),
		choose(partly, "Go on with the next "+count(outbox.SearchLimit)+" rows", "Next page"))
	return in.eventsForm() + tags(`<p>{} A row that is for one of several listeners names it (→ listener).</p>
{}
{}
{}
{}
{}
`,
		listedBy(in.get("status"), in.get("id")), when(len(rows) > longList, `{}`, nextPage), list,
		when(partly, `<p class="note" role="status">{} among these {} rows; there are more to search.</p>`,
			choose(len(rows) > 0, "No others", "Nothing"), count(found.Looked)),
		missingIndex(found.Missing), nextPage)
}

// longList is how many rows a list has at most that links to the next page only below.
const longList = 20

// eventsForm is the form of a search.
func (in input) eventsForm() markup {
	return tags(`<form method="get" action="events" class="search">
<label>Id, or its beginning <input name="id" maxlength="36" value="{}"></label>
<label>Status <select name="status">{}</select></label>
{}{}
<label>Last error contains <input name="error_text" maxlength="200" value="{}"></label>
<label>Since (UTC) <input name="since" maxlength="40" placeholder="YYYY-MM-DDThh:mm" value="{}"></label>
<label>Until (UTC) <input name="until" maxlength="40" placeholder="YYYY-MM-DDThh:mm" value="{}"></label>
<button>Find</button>
</form>
`,
		in.get("id"),
		each(append([]string{""}, operjson.States...), func(status string) markup {
			return tags(`<option value="{}"{}>{}</option>`, status, when(status == in.get("status"), ` selected`), cmp.Or(status, "all"))
		}),
		in.searchFields(), when(in.get("deletion") != "", `<label>Deletion <input name="deletion" maxlength="26" value="{}"></label>`, in.get("deletion")), in.get("error_text"), in.get("since"), in.get("until"))
}

// missingIndex says which index would have made a search quick.
func missingIndex(m *outbox.MissingIndex) markup {
	if m == nil {
		return ""
	}
	return tags(`<p class="help text">An index would find {} without reading other rows: <code>{}</code>{}</p>`,
		m.For, m.DDL, when(m.Option != "", `; then give the store of this service the option <code>{}</code>`, m.Option))
}

// eventRow is a row of a list, which has the error if a row of the list failed, and the lease if a row is
// leased.
func eventRow(row outbox.EventRow, pause outbox.Pause, failed, leased bool) markup {
	ended := row.EndedAt
	if ended.IsZero() {
		ended = row.AvailableAt
	}
	return tags(`<tr><th scope="row" class="text"><a href="{}">{}</a></th><td data-label="Status">{}</td><td class="text kind" data-label="Kind">{}</td>{}{}<td class="text" data-label="Aggregate id">{}</td><td class="text" data-label="Tenant">{}</td><td data-label="Occurred">{}</td><td data-label="{}">{}</td><td class="number" data-label="Failed attempts">{}</td></tr>
`,
		link("event", "id", row.EventID), row.EventID, stateText(&row, pause), rowKind(&row),
		when(failed, `<td class="text long" data-label="Last error">{}</td>`, cut(row.LastError, 300)),
		when(leased, `<td class="text" data-label="Leased by">{}</td>`, when(row.Lease != "", `{}, {}`, row.Lease, moment(row.LeasedAt))),
		row.AggregateID, row.TenantID, moment(row.OccurredAt), choose(row.EndedAt.IsZero(), "Due", "Ended"), moment(ended), row.Attempts)
}

// searchFields are the fields that all searches have.
func (in input) searchFields() markup {
	return tags(`<label>Event type <input name="event_type" maxlength="128" value="{}"></label>
<label>Aggregate type <input name="aggregate_type" maxlength="64" value="{}"></label>
<label>Aggregate id <input name="aggregate_id" maxlength="128" value="{}"></label>
<label>Tenant <input name="tenant_id" maxlength="64" value="{}"></label>`,
		in.get("event_type"), in.get("aggregate_type"), in.get("aggregate_id"), in.get("tenant_id"))
}

func (in input) events() (q outbox.EventQuery, err error) {
	if status := in.get("status"); status != "" && !operjson.Choose(&q.EventFilter, []string{status}, time.Now().UTC()) {
		return q, &inputError{"status", "must be " + strings.Join(operjson.States, ", ") + ", or empty for all"}
	}
	q.EventType, q.AggregateType = outbox.EventType(in.get("event_type")), outbox.AggregateType(in.get("aggregate_type"))
	q.AggregateID, q.TenantID, q.After = in.get("aggregate_id"), in.get("tenant_id"), in.get("after")
	q.IDPrefix, q.ErrorText, q.DeletionID = in.get("id"), in.get("error_text"), in.get("deletion")
	q.Since, q.Until, err = in.times()
	return q, err
}

// listedBy says which order [outbox.Outbox.FindEvents] has, and which time since and until
// are about.
func listedBy(status, id string) string {
	if id != "" {
		status = ""
	}
	switch status {
	case "WAITING", "DUE", "DELAYED", "LEASED", "NEW", "RETRY":
		return "Listed by the time when they become due, the earliest first."
	case "DONE", "DEAD":
		return "Listed by the time when they became " + status + ", the latest first."
	default:
		return "Listed by id, the newest first; the times are those when they occurred."
	}
}

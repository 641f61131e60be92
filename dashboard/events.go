package dashboard

import (
	"cmp"
	"net/http"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// statuses are the choices of the search.
var statuses = map[string][]outbox.Status{
	"": nil, "WAITING": {outbox.StatusNew, outbox.StatusRetry}, "NEW": {outbox.StatusNew}, "RETRY": {outbox.StatusRetry},
	"DONE": {outbox.StatusDone}, "DEAD": {outbox.StatusDead},
	"DUE": {outbox.StatusNew, outbox.StatusRetry}, "DELAYED": {outbox.StatusNew, outbox.StatusRetry},
}

// events searches, and lists a page.
func (p *page) events() error {
	in, err := p.query("id", "status", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "since", "until", "after")
	if err != nil {
		return err
	}
	in = in.trimmed()
	if id := in.get("id"); id != "" {
		for name := range in.given("id") {
			return &inputError{name, "is given, and id too; a search by id takes no other field"}
		}
		return p.redirect(http.StatusFound, string(link("event", "id", id)))
	}
	query, err := in.events()
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	found, err := p.outbox.FindEvents(ctx, query)
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "Events", in.eventsBody(found.Rows, found.Next))
}

// eventsBody lists a page of events; next is the place of the next page.
func (in input) eventsBody(rows []outbox.EventRow, next string) markup {
	partly := next != "" && len(rows) < outbox.DefaultFindLimit
	var list markup
	switch {
	case len(rows) > 0:
		list = tags(`<div class="wide"><table>
<thead><tr><th scope="col">Id</th><th scope="col">Status</th><th scope="col">Kind</th><th scope="col">Aggregate id</th><th scope="col">Tenant</th><th scope="col">Occurred</th><th scope="col">Ended (waiting: due)</th><th scope="col">Failed attempts</th></tr></thead>
<tbody>{}</tbody></table></div>
`, each(rows, eventRow))
	case !partly:
		list = `<p class="none">There is no such event.</p>`
	}
	following := in.given("after", "id")
	following.Set("after", next)
	return tags(`<form method="get" action="events" class="search">
<label>Id <input name="id" maxlength="36"></label>
<label>Status <select name="status">{}</select></label>
{}
<label>Since (UTC) <input name="since" maxlength="40" placeholder="2006-01-02T15:04" value="{}"></label>
<label>Until (UTC) <input name="until" maxlength="40" placeholder="2006-01-02T15:04" value="{}"></label>
<button>Find</button>
</form>
<p>{} A row that is for one of several listeners names it (→ listener).</p>
{}
{}
{}
`,
		each([]string{"", "WAITING", "DUE", "DELAYED", "NEW", "RETRY", "DONE", "DEAD"}, func(status string) markup {
			return tags(`<option value="{}"{}>{}</option>`, status, when(status == in.get("status"), ` selected`), cmp.Or(status, "all"))
		}),
		in.searchFields(), in.get("since"), in.get("until"), listedBy(in.get("status")), list,
		when(partly, `<p class="note" role="status">{} among these {} rows; there are more to search.</p>`,
			choose(len(rows) > 0, "No others", "Nothing"), count(outbox.SearchLimit)),
		when(next != "", `<p><a href="{}" rel="next">{}</a></p>`, linkTo("events", following),
			choose(partly, "Go on with the next "+count(outbox.SearchLimit)+" rows", "Next page")))
}

func eventRow(row outbox.EventRow) markup {
	ended := row.EndedAt
	if ended.IsZero() {
		ended = row.AvailableAt
	}
	return tags(`<tr><th scope="row" class="text"><a href="{}">{}</a></th><td data-label="Status">{}</td><td class="text kind" data-label="Kind">{}</td><td class="text" data-label="Aggregate id">{}</td><td class="text" data-label="Tenant">{}</td><td data-label="Occurred">{}</td><td data-label="{}">{}</td><td class="number" data-label="Failed attempts">{}</td></tr>
`, link("event", "id", row.EventID), row.EventID, statusText(row.Status), rowKind(&row), row.AggregateID, row.TenantID, moment(row.OccurredAt), choose(row.EndedAt.IsZero(), "Due", "Ended"), moment(ended), row.Attempts)
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
	list, known := statuses[in.get("status")]
	if !known {
		return q, &inputError{"status", "must be WAITING, DUE, DELAYED, NEW, RETRY, DONE or DEAD, or empty for all"}
	}
	q.Statuses, q.After = list, in.get("after")
	q.EventType, q.AggregateType = outbox.EventType(in.get("event_type")), outbox.AggregateType(in.get("aggregate_type"))
	q.AggregateID, q.TenantID = in.get("aggregate_id"), in.get("tenant_id")
	q.Since, q.Until, err = in.times()
	switch now := time.Now().UTC(); { // WAITING events are listed by the time when they become due
	case in.get("status") == "DUE" && (q.Until.IsZero() || q.Until.After(now)):
		q.Until = now
	case in.get("status") == "DELAYED" && q.Since.Before(now):
		q.Since = now
	}
	return q, err
}

// listedBy says which order [outbox.Outbox.FindEvents] has, and which time since and until
// are about.
func listedBy(status string) string {
	switch status {
	case "WAITING", "DUE", "DELAYED":
		return "Listed by the time when they become due, the earliest first."
	case "DONE", "DEAD":
		return "Listed by the time when they became " + status + ", the latest first."
	default:
		return "Listed by id, the newest first; the times are those when they occurred."
	}
}

package dashboard

import (
	"net/http"
	"net/url"

	"github.com/outboxkit/outbox-go/outbox"
)

// statuses are the choices of the search.
var statuses = map[string][]outbox.Status{
	"": nil, "WAITING": {outbox.StatusNew, outbox.StatusRetry}, "NEW": {outbox.StatusNew}, "RETRY": {outbox.StatusRetry},
	"DONE": {outbox.StatusDone}, "DEAD": {outbox.StatusDead},
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
		return p.redirect(http.StatusFound, link("event", "id", id))
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
	next := in.given("after", "id")
	next.Set("after", found.Next)
	return p.show(http.StatusOK, "events.html", "Events", struct {
		Form     url.Values
		Choices  []string
		By       string
		Events   []outbox.EventRow
		Next     string
		Partly   bool
		Searched int
	}{
		url.Values(in),
		[]string{"", "WAITING", "NEW", "RETRY", "DONE", "DEAD"},
		listedBy(in.get("status")), found.Rows,
		optional(found.Next != "", "events?"+next.Encode()), found.Next != "" && len(found.Rows) < outbox.DefaultFindLimit, outbox.SearchLimit,
	})
}

func optional(given bool, text string) string {
	if given {
		return text
	}
	return ""
}

func (in input) events() (q outbox.EventQuery, err error) {
	list, known := statuses[in.get("status")]
	if !known {
		return q, &inputError{"status", "must be WAITING, NEW, RETRY, DONE or DEAD, or empty for all"}
	}
	q.Statuses, q.After = list, in.get("after")
	q.EventType, q.AggregateType = outbox.EventType(in.get("event_type")), outbox.AggregateType(in.get("aggregate_type"))
	q.AggregateID, q.TenantID = in.get("aggregate_id"), in.get("tenant_id")
	q.Since, q.Until, err = in.times()
	return q, err
}

// listedBy says which order [outbox.Outbox.FindEvents] has, and which time since and until
// are about.
func listedBy(status string) string {
	switch status {
	case "WAITING":
		return "Listed by the time when they become due, the earliest first."
	case "DONE", "DEAD":
		return "Listed by the time when they became " + status + ", the latest first."
	default:
		return "Listed by id, the newest first; the times are those when they occurred."
	}
}

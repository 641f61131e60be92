package httptx

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// eventParameters select events, and a page of them.
var eventParameters = []string{"id_prefix", "status", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "error_text", "deletion_id", "since", "until", "limit", "after"}

// event is an [outbox.EventRow] in JSON.
type event struct {
	EventID       string               `json:"event_id"`
	Status        string               `json:"status"`
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	AggregateID   string               `json:"aggregate_id,omitempty"`
	TenantID      string               `json:"tenant_id,omitempty"`
	OccurredAt    time.Time            `json:"occurred_at"`
	AvailableAt   time.Time            `json:"available_at"`
	EndedAt       *time.Time           `json:"ended_at,omitempty"`
	Attempts      int                  `json:"attempts"`
	LastError     string               `json:"last_error,omitempty"`
	Lease         string               `json:"lease,omitempty"`
	LeasedAt      *time.Time           `json:"leased_at,omitempty"`
	Listener      string               `json:"listener,omitempty"`
	OriginalID    string               `json:"original_id,omitempty"`
	// DeletionID and DiedAt are of a deleted dead letter.
	DeletionID string     `json:"deletion_id,omitempty"`
	DiedAt     *time.Time `json:"died_at,omitempty"`
	// Waits says why a NEW or RETRY event is not delivered yet. A listing does not have it.
	Waits string `json:"waits_because,omitempty"`

	operjson.Disclosed
}

type eventListing struct {
	Events []event `json:"events"`
	// Next is the parameter "after" of the next page; empty after the last page.
	Next string `json:"next,omitempty"`
	operjson.Search
}

func eventOf(row *outbox.EventRow) event {
	e := event{
		EventID: row.EventID, Status: row.State(), EventType: row.EventType, AggregateType: row.AggregateType,
		AggregateID: row.AggregateID, TenantID: row.TenantID, OccurredAt: row.OccurredAt.UTC(), AvailableAt: row.AvailableAt.UTC(),
		EndedAt: given(row.EndedAt), Attempts: row.Attempts, LastError: row.LastError,
		Lease: row.Lease, LeasedAt: given(row.LeasedAt), Listener: row.Listener, DeletionID: row.DeletionID, DiedAt: given(row.DiedAt),
	}
	if row.Listener != "" {
		e.OriginalID = row.OriginalID
	}
	return e
}

// given returns a time in UTC, or nil for the zero time.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (a *admin) events(c *call, p parameters) (any, error) {
	query, err := p.events()
	if err != nil {
		return nil, err
	}
	page, err := a.outbox.FindEvents(c.Context(), query)
	answer := eventListing{Events: make([]event, len(page.Rows)), Next: page.Next, Search: operjson.SearchOf(&page)}
	for i := range page.Rows {
		answer.Events[i] = eventOf(&page.Rows[i])
	}
	return answer, err
}

func (p parameters) events() (query outbox.EventQuery, err error) {
	if query.Limit, err = p.limit(); err != nil {
		return query, err
	}
	if query.Since, query.Until, err = p.times(); err != nil {
		return query, err
	}
	query.EventType, query.AggregateType = outbox.EventType(p["event_type"]), outbox.AggregateType(p["aggregate_type"])
	query.AggregateID, query.TenantID, query.After = p["aggregate_id"], p["tenant_id"], p["after"]
	query.IDPrefix, query.ErrorText = p["id_prefix"], p["error_text"]
	query.DeletionID = p["deletion_id"]
	if text, given := p["status"]; given && !operjson.Choose(&query.EventFilter, strings.Split(text, ","), time.Now()) {
		return query, &parameterError{"status", fmt.Sprintf("is %.40q; it must be NEW, RETRY, DONE, DEAD or WAITING, or several with commas, or one of DUE, DELAYED and LEASED", text)}
	}
	return query, nil
}

func (a *admin) event(c *call, _ parameters) (any, error) {
	id, err := c.id("")
	if err != nil {
		return nil, err
	}
	row, err := a.outbox.FindEvent(c.Context(), id)
	if err != nil {
		return nil, err
	}
	answer := eventOf(&row)
	if answer.Waits, err = verdict.Waits(c.Context(), a.outbox, &row, time.Now()); err != nil {
		return nil, err
	}
	if c.role.May(ReadPayloads) {
		answer.Disclosed = operjson.Disclose(&row.Envelope)
	}
	return answer, nil
}

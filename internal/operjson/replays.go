package operjson

import (
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Replay is an [outbox.ReplayStatus].
type Replay struct {
	Name          string               `json:"name"`
	State         outbox.ReplayState   `json:"state"`
	Listener      string               `json:"listener"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	EventTypes    []outbox.EventType   `json:"event_types"`
	AggregateID   string               `json:"aggregate_id,omitempty"`
	TenantID      string               `json:"tenant_id,omitempty"`
	Since         time.Time            `json:"since,omitzero"`
	Until         time.Time            `json:"until,omitzero"`
	Rate          int                  `json:"rate"`
	Reason        string               `json:"reason,omitempty"`
	By            string               `json:"by,omitempty"`
	Started       time.Time            `json:"started,omitzero"`
	Moved         time.Time            `json:"moved,omitzero"`
	Place         time.Time            `json:"place,omitzero"`
	Looked        int64                `json:"looked_at"`
	Added         int64                `json:"added"`
	Unreadable    int64                `json:"unreadable"`
	Progress      time.Time            `json:"progress,omitzero"`
	Waiting       int                  `json:"waiting"`
	Failed        int                  `json:"failed"`
	LastError     string               `json:"last_error,omitempty"`
	Problem       string               `json:"problem,omitempty"`
}

// Replays is the answer to a question for the replays of delivered events.
type Replays struct {
	Replays []Replay `json:"replays"`
}

// ReplaysOf are the replays of a list.
func ReplaysOf(list []outbox.ReplayStatus) Replays {
	answer := Replays{make([]Replay, len(list))}
	for i := range list {
		r := &list[i]
		answer.Replays[i] = Replay{
			r.Name, r.State, r.Listener, r.AggregateType, r.EventTypes, r.AggregateID, r.TenantID, r.Since.UTC(), r.Until.UTC(), r.Rate, r.Reason, r.By,
			r.Started.UTC(), r.Moved.UTC(), r.Place.UTC(), r.Looked, r.Added, r.Unreadable, r.Progress.UTC(), r.Waiting, r.Failed, r.LastError, r.Problem,
		}
	}
	return answer
}

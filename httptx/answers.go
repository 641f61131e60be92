package httptx

import (
	"time"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// stats is [outbox.Stats] in JSON, with the verdict.
type stats struct {
	Verdict    verdict.Verdict `json:"verdict"`
	Pending    int64           `json:"pending"`
	Due        int64           `json:"due"`
	DuePaused  int64           `json:"due_paused"` // of Due, whose kind is paused
	Delayed    int64           `json:"delayed"`
	Dead       int64           `json:"dead"`
	CountsUpTo int             `json:"counts_up_to"` // the limit of each count
	OldestDue  float64         `json:"oldest_due_seconds"`
	// Late are the kinds with a MaxDueAge that have been due for longer.
	Late        []operjson.LateKind `json:"late"`
	HotDepth    int                 `json:"hot_depth"`
	ColdDepth   int                 `json:"cold_depth"`
	LastPoll    *time.Time          `json:"last_poll"` // null before the first poll and without a poller
	PollSeconds float64             `json:"poll_interval_seconds"`
	Paused      []pause             `json:"paused"`
	// Unheard are the kinds of events without a listener in this process.
	Unheard []operjson.Kind `json:"unheard,omitempty"`
}

func statsAnswer(f *verdict.Facts) stats {
	s := &f.Stats
	answer := stats{
		Verdict: f.Verdict(), Pending: s.Pending, Due: s.Due, DuePaused: s.DuePaused, Delayed: s.Delayed, Dead: s.Dead, CountsUpTo: outbox.StatsLimit,
		OldestDue: s.OldestDueAge.Seconds(), Late: operjson.LateKinds(s.Late), HotDepth: s.HotDepth, ColdDepth: s.ColdDepth,
		PollSeconds: s.PollInterval.Seconds(), Paused: pausesOf(s.Paused), Unheard: operjson.Kinds(s.Unheard),
	}
	if !s.LastPoll.IsZero() {
		last := s.LastPoll.UTC()
		answer.LastPoll = &last
	}
	return answer
}

type listing struct {
	DeadLetters []deadLetter `json:"dead_letters"`
	// More reports that there are letters after the limit.
	More bool `json:"more"`
	// Next is the parameter "after" of the next page.
	Next string `json:"next,omitempty"`
}

type replayed struct {
	Replayed int `json:"replayed"`
}

type deleted struct {
	Deleted int `json:"deleted"`
	// DeletionID is left out if the deletion cannot be undone.
	DeletionID string `json:"deletion_id,omitempty"`
}

type restored struct {
	Restored int `json:"restored"`
}

// deadLetter is a dead letter in a listing, without headers and payload.
type deadLetter struct {
	EventID       string               `json:"event_id"`
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	AggregateID   string               `json:"aggregate_id,omitempty"`
	TenantID      string               `json:"tenant_id,omitempty"`
	OccurredAt    time.Time            `json:"occurred_at"`
	DiedAt        time.Time            `json:"died_at"`
	Attempts      int                  `json:"attempts"`
	LastError     string               `json:"last_error"`
	PayloadBytes  int                  `json:"payload_bytes"`
	// Listener is the only listener that the letter is for, and OriginalID the event's id for
	// listeners. Both are empty for a letter that is for all listeners.
	Listener   string `json:"listener,omitempty"`
	OriginalID string `json:"original_id,omitempty"`

	operjson.Disclosed
}

func summary(l *outbox.DeadLetter) deadLetter {
	d := deadLetter{
		EventID: l.EventID, EventType: l.EventType, AggregateType: l.AggregateType,
		AggregateID: l.AggregateID, TenantID: l.TenantID,
		OccurredAt: l.OccurredAt.UTC(), DiedAt: l.DiedAt.UTC(), Attempts: l.Attempts,
		LastError: l.LastError, PayloadBytes: l.PayloadBytes,
		Listener: l.Listener,
	}
	if l.Listener != "" {
		d.OriginalID = l.OriginalID
	}
	return d
}

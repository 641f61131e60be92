package main

import (
	"time"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// The JSON has the same shape as that of httptx.Admin where both have it.

// event is an [outbox.EventRow].
type event struct {
	EventID       string               `json:"event_id"`
	Status        string               `json:"status"`
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	AggregateID   string               `json:"aggregate_id,omitempty"`
	TenantID      string               `json:"tenant_id,omitempty"`
	OccurredAt    time.Time            `json:"occurred_at"`
	AvailableAt   time.Time            `json:"available_at"`
	EndedAt       time.Time            `json:"ended_at,omitzero"`
	Attempts      int                  `json:"attempts"`
	LastError     string               `json:"last_error,omitempty"`
	Lease         string               `json:"lease,omitempty"`
	LeasedAt      time.Time            `json:"leased_at,omitzero"`
	Listener      string               `json:"listener,omitempty"`
	OriginalID    string               `json:"original_id,omitempty"`
	// DeletionID and DiedAt are of a deleted dead letter.
	DeletionID string    `json:"deletion_id,omitempty"`
	DiedAt     time.Time `json:"died_at,omitzero"`
	// Waits says why a NEW or RETRY event is not delivered yet. A listing does not have it.
	Waits string `json:"waits_because,omitempty"`
	operjson.Disclosed
}

type eventListing struct {
	Events []event `json:"events"`
	// Next is the value of --after for the next page.
	Next string `json:"next,omitempty"`
	operjson.Search
}

func eventOf(row *outbox.EventRow) event {
	e := event{
		EventID: row.EventID, Status: row.State(), EventType: row.EventType, AggregateType: row.AggregateType,
		AggregateID: row.AggregateID, TenantID: row.TenantID,
		OccurredAt: row.OccurredAt.UTC(), AvailableAt: row.AvailableAt.UTC(), EndedAt: row.EndedAt.UTC(),
		Attempts: row.Attempts, LastError: row.LastError, Lease: row.Lease, LeasedAt: row.LeasedAt.UTC(), Listener: row.Listener,
		DeletionID: row.DeletionID, DiedAt: row.DiedAt.UTC(),
	}
	if row.Listener != "" {
		e.OriginalID = row.OriginalID
	}
	return e
}

// deadLetter is an [outbox.DeadLetter].
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
	Listener      string               `json:"listener,omitempty"`
	OriginalID    string               `json:"original_id,omitempty"`
	operjson.Disclosed
}

type deadListing struct {
	DeadLetters []deadLetter `json:"dead_letters"`
	More        bool         `json:"more"`
	Next        string       `json:"next,omitempty"`
}

func deadOf(l *outbox.DeadLetter) deadLetter {
	d := deadLetter{
		EventID: l.EventID, EventType: l.EventType, AggregateType: l.AggregateType, AggregateID: l.AggregateID, TenantID: l.TenantID,
		OccurredAt: l.OccurredAt.UTC(), DiedAt: l.DiedAt.UTC(), Attempts: l.Attempts, LastError: l.LastError, PayloadBytes: l.PayloadBytes, Listener: l.Listener,
	}
	if l.Listener != "" {
		d.OriginalID = l.OriginalID
	}
	return d
}

// deadGroup is an [outbox.DeadGroup].
type deadGroup struct {
	ID            string               `json:"group"`
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	Listener      string               `json:"listener,omitempty"`
	Reason        string               `json:"reason"`
	Count         int                  `json:"count"`
	First         time.Time            `json:"first"`
	Last          time.Time            `json:"last"`
	Example       string               `json:"example"`
}

type pauseShape struct {
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	AggregateID   string               `json:"aggregate_id,omitempty"`
	Since         time.Time            `json:"since"`
	Until         time.Time            `json:"until,omitzero"`
	Reason        string               `json:"reason,omitempty"`
	By            string               `json:"by,omitempty"`
	Automatic     bool                 `json:"automatic,omitempty"`
}

func pausesOf(list []outbox.Pause) []pauseShape {
	shapes := make([]pauseShape, len(list))
	for i, p := range list {
		shapes[i] = pauseShape{p.Kind.EventType, p.Kind.AggregateType, p.AggregateID, p.Since.UTC(), p.Until.UTC(), p.Reason, p.By, p.Automatic}
	}
	return shapes
}

// node is an [outbox.Node].
type node struct {
	Owner       string    `json:"owner"`
	Mode        string    `json:"mode,omitempty"`
	Version     string    `json:"version,omitempty"`
	Problem     string    `json:"problem,omitempty"`
	Live        bool      `json:"live"`
	Holds       bool      `json:"holds"`
	Started     time.Time `json:"started,omitzero"`
	LastPoll    time.Time `json:"last_poll,omitzero"`
	SeenAt      time.Time `json:"seen_at,omitzero"`
	HotDepth    int       `json:"hot_depth"`
	ColdDepth   int       `json:"cold_depth"`
	Leases      int       `json:"leases"`
	OldestLease time.Time `json:"oldest_lease,omitzero"`
	// Kinds have a listener in the node; left out: not known.
	Kinds   []operjson.Kind `json:"kinds,omitzero"`
	Unheard []operjson.Kind `json:"unheard,omitempty"`
	// Log is of a node that publishes the rows from the database's log; left out: the node does not.
	Log *operjson.LogLag `json:"log,omitempty"`
}

// statsShape is [outbox.Stats] with the verdict and without the figures of a single process.
type statsShape struct {
	Verdict    verdict.Verdict     `json:"verdict"`
	Pending    int64               `json:"pending"`
	Due        int64               `json:"due"`
	Delayed    int64               `json:"delayed"`
	Dead       int64               `json:"dead"`
	CountsUpTo int                 `json:"counts_up_to"`
	DuePaused  int64               `json:"due_paused"`
	OldestDue  float64             `json:"oldest_due_seconds"`
	Late       []operjson.LateKind `json:"late"`
	Paused     []pauseShape        `json:"paused"`
	Throughput throughput          `json:"throughput"`
}

// throughput is [outbox.Throughput].
type throughput struct {
	Done   int64   `json:"done_last_minute"`
	Median float64 `json:"median_seconds"`
	P95    float64 `json:"p95_seconds"`
	Max    float64 `json:"max_seconds"`
}

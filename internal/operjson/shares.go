package operjson

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// LateKind is an [outbox.LateKind].
type LateKind struct {
	Kind
	Events    int64   `json:"events"`
	OldestDue float64 `json:"oldest_due_seconds"`
	MaxDueAge float64 `json:"max_due_age_seconds"`
}

// LateKinds are the kinds of a list, which is not nil.
func LateKinds(list []outbox.LateKind) []LateKind {
	kinds := make([]LateKind, len(list))
	for i, k := range list {
		kinds[i] = LateKind{Kind{k.Kind.EventType, k.Kind.AggregateType}, k.Events, k.OldestDueAge.Seconds(), k.MaxDueAge.Seconds()}
	}
	return kinds
}

// KindShares is an [outbox.KindShares].
type KindShares struct {
	Kind
	Concurrency    int     `json:"concurrency,omitempty"`
	Rate           float64 `json:"rate,omitempty"`
	Burst          int     `json:"burst,omitempty"`
	KeyConcurrency int     `json:"key_concurrency,omitempty"`
	KeyRate        float64 `json:"key_rate,omitempty"`
	Parts          int     `json:"parts,omitempty"`
	Shares         []Share `json:"shares"`
	Problem        string  `json:"problem,omitempty"`
}

// Share is an [outbox.ProcessShare].
type Share struct {
	Owner string    `json:"owner"`
	Parts int       `json:"parts"`
	Of    int       `json:"of"`
	Until time.Time `json:"until"`
	Waits bool      `json:"waits"`
}

// Shares is the answer to a question for the shares of all kinds.
type Shares struct {
	Kinds []KindShares `json:"kinds"`
}

// SharesOf are the shares of a list.
func SharesOf(list []outbox.KindShares) Shares {
	answer := Shares{make([]KindShares, len(list))}
	for i := range list {
		k := &list[i]
		shares := make([]Share, len(k.Shares))
		for j, s := range k.Shares {
			shares[j] = Share{s.Owner, s.Parts, s.Of, s.Until.UTC(), s.Waits}
		}
		answer.Kinds[i] = KindShares{Kind{k.Kind.EventType, k.Kind.AggregateType}, k.Concurrency, k.Rate, k.Burst, k.KeyConcurrency, k.KeyRate, k.Parts, shares, k.Problem}
	}
	return answer
}

// Limits are the limits of a kind as a text, or the problem of the row.
func Limits(k *outbox.KindShares) string {
	var limits []string
	if k.Concurrency > 0 {
		limits = append(limits, fmt.Sprintf("%d at once", k.Concurrency))
	}
	if k.Rate > 0 {
		limits = append(limits, fmt.Sprintf("%g a second, burst %d", k.Rate, k.Burst))
	}
	if k.KeyConcurrency > 0 {
		limits = append(limits, fmt.Sprintf("%d at once for a key", k.KeyConcurrency))
	}
	if k.KeyRate > 0 {
		limits = append(limits, fmt.Sprintf("%g a second for a key", k.KeyRate))
	}
	if k.Problem != "" {
		limits = append(limits, k.Problem)
	}
	return strings.Join(limits, "; ")
}

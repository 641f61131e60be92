package outbox

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"

	"github.com/outboxkit/outbox-go/outbox/internal/shares"
)

// sharesRow is the row of the control table with the shares of all processes in the limits of a kind.
type sharesRow struct {
	db    DB
	store Store
	kind  EventKind
}

// Read implements [shares.Table].
func (r sharesRow) Read(ctx context.Context) (shares.Row, error) {
	row, err := r.store.Shares(ctx, r.db, r.kind)
	return shares.Row(row), err
}

// Replace implements [shares.Table].
func (r sharesRow) Replace(ctx context.Context, was string, next shares.Row) (bool, error) {
	return r.store.SetShares(ctx, r.db, r.kind, was, Shares(next))
}

// fleet makes the shares of this process in limits of all processes.
type fleet struct {
	db    DB
	store Store
	owner string
	log   *slog.Logger
}

// share makes the share of a kind. wants reports whether there are events.
func (f *fleet) share(kind EventKind, limits shares.Limits, wants func() bool, resized func(parts int)) *shares.Share {
	return shares.New(shares.Options{
		Limits: limits, Table: sharesRow{f.db, f.store, kind}, Of: kind.String(),
		Kind:  [2]string{string(kind.AggregateType), string(kind.EventType)},
		Name:  f.owner + "/" + rand.Text()[:8], // another process may have the same owner
		Wants: wants, Resized: resized, Log: f.log, Attrs: []any{logKeyAggregateType, kind.AggregateType, logKeyEventType, kind.EventType},
	})
}

// kindShares reads the shares of a kind for operators.
func kindShares(row Shares) KindShares {
	state, err := shares.Read(shares.Row(row))
	if err != nil {
		return KindShares{Problem: err.Error()}
	}
	k := KindShares{
		Kind:        EventKind{AggregateType: AggregateType(state.Kind[0]), EventType: EventType(state.Kind[1])},
		Concurrency: state.Limits.Concurrency, Rate: state.Limits.Rate, Burst: state.Limits.Burst,
		KeyConcurrency: state.Limits.KeyConcurrency, KeyRate: state.Limits.KeyRate,
	}
	if k.Kind == (EventKind{}) { // written by an older version
		aggregateType, eventType, _ := strings.Cut(state.Of, "/")
		k.Kind = EventKind{AggregateType: AggregateType(aggregateType), EventType: EventType(eventType)}
	}
	if state.Limits != (shares.Limits{}) {
		k.Parts = state.Limits.Parts()
	}
	for _, m := range state.Members {
		owner := m.Name
		if i := strings.LastIndexByte(m.Name, '/'); i >= 0 {
			owner = m.Name[:i] // the rest tells processes of the same owner apart
		}
		k.Shares = append(k.Shares, ProcessShare{Owner: owner, Parts: m.Parts, Of: m.Of, Until: m.Until, Waits: m.Waits})
	}
	return k
}

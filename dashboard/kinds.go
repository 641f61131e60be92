package dashboard

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// sampled is how many events of each sort are looked at for their kinds.
const sampled = 200

// kinds returns the kinds of the newest events, of waiting events, and of the latest dead letters.
func (p *page) kinds(ctx context.Context) ([]outbox.EventKind, error) {
	found := map[outbox.EventKind]bool{}
	for _, list := range [][]outbox.Status{nil, {outbox.StatusNew, outbox.StatusRetry}, {outbox.StatusDead}} {
		query := outbox.EventQuery{Limit: sampled}
		query.Statuses = list
		events, err := p.outbox.FindEvents(ctx, query)
		if err != nil {
			return nil, err
		}
		for i := range events.Rows {
			found[outbox.EventKind{AggregateType: events.Rows[i].AggregateType, EventType: events.Rows[i].EventType}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b outbox.EventKind) int { return strings.Compare(a.String(), b.String()) }), nil
}

// unknown reports whether a search finds no event of the kind, and returns the known kinds of the
// same event type.
func (p *page) unknown(ctx context.Context, kind outbox.EventKind) (unknown bool, similar []outbox.EventKind, err error) {
	known, err := p.kinds(ctx)
	if err != nil || slices.Contains(known, kind) {
		return false, nil, err
	}
	query := outbox.EventQuery{Limit: 1}
	query.EventType, query.AggregateType = kind.EventType, kind.AggregateType
	found, err := p.outbox.FindEvents(ctx, query)
	if err != nil || len(found.Rows) > 0 {
		return false, nil, err
	}
	return true, slices.DeleteFunc(known, func(k outbox.EventKind) bool {
		return !strings.EqualFold(string(k.EventType), string(kind.EventType))
	}), nil
}

// eventTypes and aggregateTypes return the choices that a form offers.
func eventTypes(kinds []outbox.EventKind) []string {
	return distinct(kinds, func(k outbox.EventKind) string { return string(k.EventType) })
}

func aggregateTypes(kinds []outbox.EventKind) []string {
	return distinct(kinds, func(k outbox.EventKind) string { return string(k.AggregateType) })
}

func distinct(kinds []outbox.EventKind, field func(outbox.EventKind) string) (list []string) {
	for _, kind := range kinds {
		if text := field(kind); text != string(outbox.Global) {
			list = append(list, text)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

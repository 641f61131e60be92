package outbox

import (
	"context"
	"crypto/rand"
	"log/slog"

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
		Name:  f.owner + "/" + rand.Text()[:8], // another process may have the same owner
		Wants: wants, Resized: resized, Log: f.log, Attrs: []any{logKeyAggregateType, kind.AggregateType, logKeyEventType, kind.EventType},
	})
}

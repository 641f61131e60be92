package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/leases"
)

// tableLeases names, renews and gives back the leases that this process's events have in the table.
type tableLeases struct {
	names    *leases.Names
	keeper   *leases.Keeper[Lease]
	releaser *leases.Releaser[Lease]

	db    DB
	store Store
	lasts time.Duration // the duration of a lease, unless the lease is renewed
	track *tracker
	freed func() // called when rows became free for every process
}

func newTableLeases(db DB, store Store, claim ClaimOptions, track *tracker, log *slog.Logger, freed func()) *tableLeases {
	t := &tableLeases{
		names: leases.NewNames(claim.Owner), db: db, store: store, lasts: claim.LeaseDuration, track: track, freed: freed,
	}
	t.keeper = leases.NewKeeper(claim.Owner, t.lasts, t, log)
	t.releaser = leases.NewReleaser(claim.Owner, t.lasts, t, log)
	return t
}

func (t *tableLeases) start() {
	t.keeper.Start()
	t.releaser.Start()
}

// Leases are the leases of the events in hand.
func (t *tableLeases) Leases() []Lease { return t.track.leases() }

// Renew renews leases.
func (t *tableLeases) Renew(ctx context.Context, renewed []Lease) error {
	began := time.Now()
	err := t.store.Renew(ctx, t.db, renewed)
	if err == nil {
		t.track.renewed(renewed, began, t.lasts)
	}
	return err
}

// Leased reads the leases of the rows that claims took.
func (t *tableLeases) Leased(ctx context.Context, claims []string) (map[string][]Lease, error) {
	found, err := t.store.Leased(ctx, t.db, claims)
	byClaim := make(map[string][]Lease, len(claims))
	for _, l := range found {
		byClaim[l.Name] = append(byClaim[l.Name], l)
	}
	return byClaim, err
}

// Release gives leases back, and tells the pollers when rows became free.
func (t *tableLeases) Release(ctx context.Context, back []Lease) (n int, err error) {
	marks := make([]Mark, len(back))
	for i, l := range back {
		marks[i] = Mark{EventID: l.EventID, Lease: l.Name}
	}
	left, err := t.store.Mark(ctx, t.db, OutcomeReleased, marks)
	if err != nil {
		return 0, err
	}
	if n = len(marks) - len(left); n > 0 {
		t.freed()
	}
	return n, nil
}

// eventsOf are the ids of the events that have the leases.
func eventsOf(leases []Lease) (ids []string) {
	for _, l := range leases {
		ids = append(ids, l.EventID)
	}
	return ids
}

// leasesOf are the leases of deliveries, as far as they have leases.
func leasesOf(ds []delivery) (leases []Lease) {
	for i := range ds {
		if ds[i].lease != "" {
			leases = append(leases, Lease{ds[i].id(), ds[i].lease})
		}
	}
	return leases
}

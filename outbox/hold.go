package outbox

import (
	"context"
	"time"
)

// heldTable is the table that one process at a time delivers from, in the modes without
// leases. The hold is a row in the control table.
type heldTable struct {
	db     DB
	store  Store
	owner  string
	poller *poller
}

// Hold takes or renews the hold.
func (t heldTable) Hold(ctx context.Context, d time.Duration) (owner string, died bool, err error) {
	now, err := t.store.HoldTable(ctx, t.db, t.owner, d)
	return now.Owner, now.Died != "", err
}

// Release gives the table up.
func (t heldTable) Release(ctx context.Context) error {
	return t.store.ReleaseTable(ctx, t.db, t.owner)
}

// Gained is called when this process begins to hold the table.
func (t heldTable) Gained(died bool) { t.poller.begin(died) }

// Begin makes the poller read.
func (t heldTable) Begin() { t.poller.Wake() }

package outbox

import (
	"context"
	"time"
)

// leaseKeeper renews the leases of the events that this node has in hand, three
// times in the time that a lease lasts, so that a listener may take longer than
// that. Events of open transactions are left out: their rows are locked.
type leaseKeeper struct {
	d      *Dispatcher
	db     DB
	store  Store
	ctx    context.Context // ends when the keeper is closed
	cancel context.CancelFunc
	done   chan struct{}
}

const renewBatch = 500

func newLeaseKeeper(d *Dispatcher, db DB, store Store) *leaseKeeper {
	k := &leaseKeeper{d: d, db: db, store: store, done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

func (k *leaseKeeper) start() { go k.run() }

func (k *leaseKeeper) run() {
	defer close(k.done)
	ticker := time.NewTicker(max(k.d.claim.LockTimeout/3, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.renew()
		case <-k.ctx.Done():
			return
		}
	}
}

func (k *leaseKeeper) renew() {
	ids := k.d.track.inFlightIDs()
	for len(ids) > 0 {
		n := min(len(ids), renewBatch)
		ctx, cancel := context.WithTimeout(k.ctx, k.d.claim.LockTimeout)
		_, err := k.store.Renew(ctx, k.db, k.d.claim.Owner, ids[:n])
		cancel()
		if err != nil {
			if k.ctx.Err() == nil {
				k.d.log.Error("outbox: leases could not be renewed", logKeyOwner, k.d.claim.Owner, logKeyCount, len(ids), logKeyError, err.Error())
			}
			return
		}
		ids = ids[n:]
	}
}

func (k *leaseKeeper) close() {
	k.cancel()
	<-k.done
}

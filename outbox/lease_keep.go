package outbox

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// leaseKeeper renews the leases of the events that this node has in hand, three
// times in the time that a lease lasts, so that a listener may take longer than
// that.
type leaseKeeper struct {
	d      *Dispatcher
	db     DB
	store  Store
	ctx    context.Context // ends when the keeper is closed
	cancel context.CancelFunc
	done   chan struct{}

	failing logburst.Burst
}

// Limits of the lease keeper.
const (
	renewBatch   = 500              // leases in one statement
	renewPieces  = 8                // that those are cut into that failed together
	renewTimeout = 30 * time.Second // one statement, or a quarter of a lease
	pieceTimeout = 2 * time.Second  // one for a piece, or a sixteenth of a lease
	renewPause   = 5 * time.Second  // until what failed is tried again, or a sixteenth of a lease
	renewTries   = 3                // that fail in a row: then it is the database, not a row
)

func newLeaseKeeper(d *Dispatcher, db DB, store Store) *leaseKeeper {
	k := &leaseKeeper{d: d, db: db, store: store, done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.failing = logburst.Burst{
		Log: d.log, Level: slog.LevelError, Message: "outbox: leases could not be renewed, trying again",
		Ended: "outbox: leases are renewed again",
	}
	return k
}

func (k *leaseKeeper) start() { go k.run() }

func (k *leaseKeeper) run() {
	defer close(k.done)
	lease := k.d.lockTimeout
	ticker := time.NewTicker(max(lease/3, time.Millisecond))
	defer ticker.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	var failed []Lease
	for {
		select {
		case <-ticker.C:
			failed = k.renew(k.d.track.leases(), false)
		case <-again.C:
			failed = k.renew(failed, len(failed) == 1)
		case <-k.ctx.Done():
			return
		}
		if len(failed) > 0 {
			again.Reset(max(min(lease/16, renewPause), time.Millisecond))
		}
	}
}

// renew renews leases and returns those that it could not. One row that somebody
// locked fails all that are renewed with it: they are tried again in ever smaller
// pieces, when the others are done. A piece, which may hold that row, gets less
// time.
func (k *leaseKeeper) renew(leases []Lease, piece bool) (failed []Lease) {
	var last error
	inARow := 0
	chunks := slices.Collect(slices.Chunk(leases, renewBatch))
	for i, whole := 0, len(chunks); i < len(chunks); i++ {
		chunk := chunks[i]
		err := k.renewChunk(chunk, piece || i >= whole)
		switch {
		case err == nil:
			inARow = 0
			continue
		case k.ctx.Err() != nil:
			return nil
		}
		last = err
		if inARow++; inARow == renewTries {
			failed = slices.Concat(failed, slices.Concat(chunks[i:]...))
			break
		}
		if len(chunk) == 1 {
			failed = append(failed, chunk[0])
			continue
		}
		chunks = slices.AppendSeq(chunks, slices.Chunk(chunk, (len(chunk)+renewPieces-1)/renewPieces))
	}
	if len(failed) > 0 {
		k.failing.Add(len(failed), logKeyOwner, k.d.names.owner, logKeyError, last.Error())
	} else {
		k.failing.End()
	}
	return failed
}

func (k *leaseKeeper) renewChunk(leases []Lease, piece bool) error {
	lease := k.d.lockTimeout
	limit := min(lease/4, renewTimeout)
	if piece {
		limit = min(lease/16, pieceTimeout)
	}
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	began := time.Now()
	err := k.store.Renew(ctx, k.db, leases)
	if err == nil {
		k.d.track.renewed(leases, began, lease)
	}
	return err
}

func (k *leaseKeeper) close() {
	k.cancel()
	wait.For(context.Background(), k.done, wait.Grace)
	k.failing.Flush()
}

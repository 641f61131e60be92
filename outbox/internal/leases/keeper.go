package leases

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Kept are the leases that a [Keeper] renews. L identifies a lease.
type Kept[L any] interface {
	// Leases are the leases to renew now.
	Leases() []L
	// Renew renews leases in a single statement.
	Renew(ctx context.Context, leases []L) error
}

// Keeper renews leases three times in the time that a lease lasts, so that work may take longer
// than a lease. A Keeper has a single goroutine.
type Keeper[L any] struct {
	kept    Kept[L]
	owner   string
	lease   time.Duration
	failing logburst.Burst

	ctx    context.Context // ends when the keeper is closed
	cancel context.CancelFunc
	done   chan struct{}
}

const (
	renewBatch   = 500              // leases in one statement
	renewPieces  = 8                // pieces of the leases that failed together
	renewTimeout = 30 * time.Second // of a statement, or a quarter of a lease
	pieceTimeout = 2 * time.Second  // of a statement for a piece, or a sixteenth of a lease
	renewPause   = 5 * time.Second  // until failed leases are tried again, or a sixteenth of a lease
	renewTries   = 3                // failures in a row: then the database is to blame, not a row
)

// NewKeeper makes a keeper of an owner's leases, which last for the given time.
func NewKeeper[L any](owner string, lease time.Duration, kept Kept[L], log *slog.Logger) *Keeper[L] {
	k := &Keeper[L]{kept: kept, owner: owner, lease: lease, done: make(chan struct{})}
	k.failing = logburst.Burst{
		Log: log, Level: slog.LevelError, Message: "outbox: leases could not be renewed; trying again",
		Ended: "outbox: leases are renewed again",
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Start begins to renew. Call it once.
func (k *Keeper[L]) Start() { go k.run() }

func (k *Keeper[L]) run() {
	defer close(k.done)
	ticker := time.NewTicker(max(k.lease/3, time.Millisecond))
	defer ticker.Stop()
	again := time.NewTimer(wait.Never)
	defer again.Stop()
	var failed []L
	for {
		select {
		case <-ticker.C:
			failed = k.renew(k.kept.Leases(), false)
		case <-again.C:
			failed = k.renew(failed, len(failed) == 1)
		case <-k.ctx.Done():
			return
		}
		if len(failed) > 0 {
			again.Reset(max(min(k.lease/16, renewPause), time.Millisecond))
		}
	}
}

// renew renews leases and returns the leases that it could not renew. A single row that another
// transaction locked fails all leases of the statement: these leases are tried again in ever
// smaller pieces, after the other leases. A piece, which may hold the locked row, gets less time.
func (k *Keeper[L]) renew(leases []L, piece bool) (failed []L) {
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
		k.failing.Add(len(failed), "owner", k.owner, "error", last.Error())
	} else {
		k.failing.End()
	}
	return failed
}

func (k *Keeper[L]) renewChunk(leases []L, piece bool) error {
	limit := min(k.lease/4, renewTimeout)
	if piece {
		limit = min(k.lease/16, pieceTimeout)
	}
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	return k.kept.Renew(ctx, leases)
}

// Close ends the keeper. Close does not wait for a statement of a driver that ignores the end of a
// context.
func (k *Keeper[L]) Close() {
	k.cancel()
	wait.For(context.Background(), k.done, wait.Grace)
	k.failing.Flush()
}

package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Limits of the holder.
const (
	holdTime     = 8 * time.Second // the hold, unless it is renewed
	holdRenew    = 2 * time.Second // between renewals
	holdWait     = time.Second     // between a standby's tries, and after a failure
	holdPatience = 2 * time.Second // one statement
)

// holder keeps the table for one process in the modes without leases. The
// process that holds it delivers; another one writes, and waits as a standby. The
// hold is a row in the control table, on the database's clock. A process that
// could not renew it for as long as it lasts does not deliver until it has it
// again.
type holder struct {
	db    DB
	store Store
	owner string
	log   *slog.Logger
	// gained is called when this process begins to hold the table; died says that
	// the process before did not give it up.
	gained func(died bool)
	wake   func() // called when it has the table

	failing logburst.Burst

	epoch time.Time
	until atomic.Int64 // of the hold, since epoch, by this process's clock
	// term counts the holds: another process may have delivered between two.
	term atomic.Int64
	// standby: another process held the table at the last try.
	standby atomic.Bool
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{} // nil: it was not started
	// released is the error of giving the table up; valid when done is closed.
	released error

	// These belong to the goroutine that tries.
	held    bool   // at the last try
	failed  bool   // the last try
	waiting string // who held the table at the last try
}

func newHolder(db DB, store Store, owner string, log *slog.Logger, gained func(died bool), wake func()) *holder {
	h := &holder{db: db, store: store, owner: owner, log: log, gained: gained, wake: wake, epoch: time.Now()}
	h.failing = logburst.Burst{
		Log: log, Level: slog.LevelError, Message: "outbox: the hold on the table could not be renewed, trying again",
		Ended: "outbox: the hold on the table is renewed again",
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// holds reports whether this process may deliver now.
func (h *holder) holds() bool { return int64(time.Since(h.epoch)) < h.until.Load() }

// start begins to renew the hold, or to wait for it. Before, try is called once, so that
// a process that is alone delivers at once.
func (h *holder) start() {
	h.done = make(chan struct{})
	go h.run()
}

// run is the holder's goroutine. At the end it gives the table up for a process that
// waits.
func (h *holder) run() {
	defer close(h.done)
	for {
		pause := holdWait
		if h.held && !h.failed {
			pause = holdRenew
		}
		wait.Sleep(h.ctx, pause)
		if h.ctx.Err() != nil {
			h.released = h.release()
			return
		}
		ctx, cancel := context.WithTimeout(h.ctx, holdPatience)
		err := h.try(ctx)
		cancel()
		if h.failed = err != nil; h.failed {
			h.failing.Add(1, logKeyError, err.Error())
		} else {
			h.failing.End()
		}
	}
}

// try takes or renews the hold.
func (h *holder) try(ctx context.Context) error {
	began := time.Since(h.epoch)
	now, err := h.store.HoldTable(ctx, h.db, h.owner, holdTime)
	if err != nil {
		return err
	}
	if now.Owner != h.owner {
		if now.Owner != "" && h.waiting != now.Owner {
			h.log.Info("outbox: another process delivers from the table, or died less than 10s ago; this one waits as a standby", logKeyHolder, now.Owner, logKeyOwner, h.owner)
		}
		h.held, h.waiting = false, now.Owner
		h.until.Store(0)
		h.standby.Store(true)
		return nil
	}
	h.standby.Store(false)
	lapsed := !h.holds()
	if lapsed { // before anything is delivered
		h.term.Add(1)
		h.gained(now.Died != "")
	}
	h.until.Store(int64(began + holdTime))
	if h.waiting != "" {
		h.log.Info("outbox: this process delivers from the table now", logKeyOwner, h.owner, logKeyHolder, h.waiting, logKeyDied, now.Died != "")
	}
	if lapsed {
		h.wake()
	}
	h.held, h.waiting = true, ""
	return nil
}

// close ends the hold. It does not wait for a statement of a driver that ignores the end
// of its context.
func (h *holder) close() error {
	h.cancel()
	if h.done == nil {
		return nil
	}
	defer h.failing.Flush()
	defer h.until.Store(0)
	if !wait.For(context.Background(), h.done, holdPatience+wait.Grace) {
		return context.DeadlineExceeded
	}
	return h.released
}

func (h *holder) release() error {
	h.until.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), holdPatience)
	defer cancel()
	return h.store.ReleaseTable(ctx, h.db, h.owner)
}

// Package hold lets one process at a time work on a table.
package hold

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const (
	holdTime     = 8 * time.Second // the hold, unless it is renewed
	holdRenew    = 2 * time.Second // between renewals
	holdWait     = time.Second     // between a standby's tries, and after a failure
	holdPatience = 2 * time.Second // of a statement
)

// Table is a table that one process at a time holds. The database's clock says when a hold
// ends.
type Table interface {
	// Hold takes or renews the hold for the given time, and returns the owner that holds the
	// table now. died: the process that held the table before did not give it up.
	Hold(ctx context.Context, d time.Duration) (owner string, died bool, err error)
	// Release gives the table up.
	Release(ctx context.Context) error
	// Gained is called when this process begins to hold the table, before Holds is true.
	Gained(died bool)
	// Begin is called after Gained, when Holds is true.
	Begin()
}

// Hold is this process's hold on a table. The process that holds the table works; another
// process waits as a standby. A process that could not renew the hold for as long as it lasts
// does not work until it has the hold again. Holds, Standby, Term and NewTerm are safe for
// concurrent use.
type Hold struct {
	table   Table
	owner   string
	log     *slog.Logger
	failing logburst.Burst

	epoch   time.Time
	until   atomic.Int64 // of the hold, since epoch, by this process's clock
	term    atomic.Int64
	standby atomic.Bool

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // nil: it was not started
	// released is the error of giving the table up; valid when done is closed.
	released error

	// These fields belong to the goroutine that tries.
	held    bool   // at the last try
	failed  bool   // the last try
	waiting string // the owner of the table at the last try
}

// New makes the hold of an owner, which does not hold the table yet.
func New(owner string, table Table, log *slog.Logger) *Hold {
	h := &Hold{owner: owner, table: table, log: log, epoch: time.Now()}
	h.failing = logburst.Burst{
		Log: log, Level: slog.LevelError, Message: "outbox: the hold on the table could not be renewed; trying again",
		Ended: "outbox: the hold on the table is renewed again",
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Holds reports whether this process may work now.
func (h *Hold) Holds() bool { return int64(time.Since(h.epoch)) < h.until.Load() }

// Standby reports whether another process held the table at the last try.
func (h *Hold) Standby() bool { return h.standby.Load() }

// Term counts the holds: another process may have worked between two terms.
func (h *Hold) Term() int64 { return h.term.Load() }

// NewTerm begins a new term, as if another process had worked.
func (h *Hold) NewTerm() { h.term.Add(1) }

// Start begins to renew the hold, or to wait for it. Try is called once before, so that a
// process that is alone works at once.
func (h *Hold) Start() {
	h.done = make(chan struct{})
	go h.run()
}

// run is the goroutine. At the end, run gives the table up for a process that waits.
func (h *Hold) run() {
	defer close(h.done)
	for {
		pause := holdWait
		if h.held && !h.failed {
			pause = holdRenew
		}
		wait.Sleep(h.ctx, pause)
		if h.ctx.Err() != nil {
			h.released = h.Release()
			return
		}
		ctx, cancel := context.WithTimeout(h.ctx, holdPatience)
		err := h.Try(ctx)
		cancel()
		if h.failed = err != nil; h.failed {
			h.failing.Add(1, "error", err.Error())
		} else {
			h.failing.End()
		}
	}
}

// Try takes or renews the hold. Do not call it after Start.
func (h *Hold) Try(ctx context.Context) error {
	began := time.Since(h.epoch)
	owner, died, err := h.table.Hold(ctx, holdTime)
	if err != nil {
		return err
	}
	if owner != h.owner {
		if owner != "" && h.waiting != owner {
			h.log.Info("outbox: another process delivers from the table, or died less than 10s ago; this process waits as a standby", "holder", owner, "owner", h.owner)
		}
		h.held, h.waiting = false, owner
		h.until.Store(0)
		h.standby.Store(true)
		return nil
	}
	h.standby.Store(false)
	lapsed := !h.Holds()
	if lapsed { // before any work begins
		h.NewTerm()
		h.table.Gained(died)
	}
	h.until.Store(int64(began + holdTime))
	if h.waiting != "" {
		h.log.Info("outbox: this process delivers from the table now", "owner", h.owner, "holder", h.waiting, "died", died)
	}
	if lapsed {
		h.table.Begin()
	}
	h.held, h.waiting = true, ""
	return nil
}

// Close ends the hold. Close does not wait for a statement of a driver that ignores the end of a
// context.
func (h *Hold) Close() error {
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

// Release gives the table up. Do not call it between Start and Close.
func (h *Hold) Release() error {
	h.until.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), holdPatience)
	defer cancel()
	return h.table.Release(ctx)
}

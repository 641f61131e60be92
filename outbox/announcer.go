package outbox

import (
	"context"
	"log/slog"
	"time"
)

// Limits of the announcer.
const (
	announceEvery    = 10 * time.Second
	announceFor      = 3 * announceEvery // a report counts, unless it is replaced
	announcePatience = 2 * time.Second   // one report
)

// announcer reports this node to the control table, for operators: every ten seconds from
// Start on, also while it is a standby. Close withdraws the report. A report that fails is
// logged at debug level only, because the poller reports an outage.
type announcer struct {
	db    DB
	store Store
	log   *slog.Logger
	clock Clock
	// report is what this node reports now; Started is added.
	report func() Node
	loop   loop
}

func newAnnouncer(db DB, store Store, log *slog.Logger, clock Clock, report func() Node) *announcer {
	a := &announcer{db: db, store: store, log: log, clock: clock, report: report}
	a.loop.init(a.run)
	return a
}

func (a *announcer) run(ctx context.Context) {
	started := storedTime(a.clock.Now())
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	for {
		node := a.report()
		node.Started = started
		a.try(ctx, announcePatience, "outbox: this node could not be reported, the next report tries again", func(ctx context.Context) error {
			return a.store.Announce(ctx, a.db, node, announceFor)
		})
		select {
		case <-ticker.C:
		case <-ctx.Done():
			a.try(context.WithoutCancel(ctx), closeGrace, "outbox: the report of this node could not be withdrawn, it expires", func(ctx context.Context) error {
				return a.store.Withdraw(ctx, a.db, node.Owner)
			})
			return
		}
	}
}

// try runs a statement that may fail.
func (a *announcer) try(ctx context.Context, limit time.Duration, failed string, run func(ctx context.Context) error) {
	statement, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(statement); err != nil && ctx.Err() == nil {
		a.log.Debug(failed, logKeyError, err.Error())
	}
}

// close ends it, and waits no longer than the withdrawal may take. It returns no error: a
// report that stays expires.
func (a *announcer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = a.loop.close(ctx)
}

// node is what this process reports.
func (o *Outbox) node() Node {
	n := Node{Owner: o.owner(), Mode: modeName(o.mode), LastPoll: o.poller.LastPoll()}
	if !n.LastPoll.IsZero() {
		n.LastPoll = storedTime(n.LastPoll)
	}
	n.HotDepth, n.ColdDepth = o.dispatcher.Depths()
	return n
}

// owner is the name of this process's leases and of its hold.
func (o *Outbox) owner() string { return o.dispatcher.names.owner }

package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/loop"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Limits of the announcer.
const (
	announceEvery    = 10 * time.Second
	announceFor      = 3 * announceEvery // a report counts, unless it is replaced
	announcePatience = 2 * time.Second   // one report
	withdrawPatience = wait.Grace / 2    // withdrawing it, while the outbox closes
)

// announcer reports this node to the control table, for operators: every nine to ten seconds from
// Start on, also while the node is a standby, and once after the first poll. After the first report
// the announcer reads the reports of the other nodes, and warns when a node that delivers has
// another mode. Close withdraws the report. A report that fails is logged at debug level only,
// because the poller reports an outage; the failure is counted, because the report is the only
// write that every process makes, however idle.
type announcer struct {
	db    DB
	store Store
	log   *slog.Logger
	clock Clock
	// report returns the present report of this node; Started is added.
	report func() Node
	// failures counts the reports in a row that failed.
	failures atomic.Int64
	// polled is closed after the first poll; nil without a poller.
	polled <-chan struct{}
	loop   *loop.Loop
}

func newAnnouncer(db DB, store Store, log *slog.Logger, clock Clock, report func() Node, polled <-chan struct{}) *announcer {
	a := &announcer{db: db, store: store, log: log, clock: clock, report: report, polled: polled}
	a.loop = loop.New(a.run, ErrClosed)
	return a
}

func (a *announcer) run(ctx context.Context) {
	started := storedTime(a.clock.Now())
	ticker := time.NewTicker(announceEvery - rand.N(announceEvery/10)) // not all nodes of a deploy together
	defer ticker.Stop()
	compared := false
	for polled := a.polled; ; {
		node := a.report()
		node.Started = started
		a.try(ctx, announcePatience, "outbox: this node could not be reported, the next report tries again", func(ctx context.Context) error {
			err := a.store.Announce(ctx, a.db, node, announceFor)
			a.count(ctx, err)
			if err == nil && !compared {
				err = a.compare(ctx, node)
				compared = err == nil
			}
			return err
		})
		select {
		case <-ticker.C:
		case <-polled:
			polled = nil
		case <-ctx.Done():
			a.try(context.WithoutCancel(ctx), withdrawPatience, "outbox: the report of this node could not be withdrawn, it expires", func(ctx context.Context) error {
				return a.store.Withdraw(ctx, a.db, node.Owner)
			})
			return
		}
	}
}

// count counts a report that failed, unless the outbox closed meanwhile.
func (a *announcer) count(ctx context.Context, err error) {
	switch {
	case err == nil:
		a.failures.Store(0)
	case !errors.Is(ctx.Err(), context.Canceled):
		a.failures.Add(1)
	}
}

// compare warns when another node delivers in another mode.
func (a *announcer) compare(ctx context.Context, own Node) error {
	if !own.Delivers() {
		return nil
	}
	nodes, err := a.store.Nodes(ctx, a.db)
	for _, n := range nodes {
		if n.Live && n.Delivers() && n.Mode != own.Mode {
			a.log.Warn("outbox: another process delivers from this table in another mode, so events may be delivered twice and out of order; stop it, or give both the same mode",
				logKeyMode, own.Mode, logKeyOtherMode, n.Mode, logKeyOther, n.Owner)
			break
		}
	}
	return err
}

// try runs a statement that may fail.
func (a *announcer) try(ctx context.Context, limit time.Duration, failed string, run func(ctx context.Context) error) {
	statement, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(statement); err != nil && ctx.Err() == nil {
		a.log.Debug(failed, logKeyError, err.Error())
	}
}

// withdraw begins to withdraw the report; close waits for the end.
func (a *announcer) withdraw() { a.loop.Cancel() }

// close waits for wait.Grace, which is more than the withdrawal may take. close fails only if a
// statement has not ended: a report that could not be withdrawn expires.
func (a *announcer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	if err := a.loop.Close(ctx); err != nil {
		return fmt.Errorf("outbox: withdrawing the report of this node: %w", err)
	}
	return nil
}

// programVersion is the version in the build information of the program, or "".
var programVersion = sync.OnceValue(func() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return ""
	}
	return versionOf(info)
})

// versionOf is the version of the main module, or, without such a version, the beginning of the revision.
func versionOf(info *debug.BuildInfo) string {
	const revisionLength = 12 // as in a pseudo-version
	version, modified := info.Main.Version, ""
	if version == "(devel)" {
		version = ""
	}
	if version == "" {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				version = s.Value[:min(len(s.Value), revisionLength)]
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = "+dirty" // as in a version of the main module
			}
		}
	}
	if version == "" {
		return ""
	}
	return singleLine(version+modified, MaxVersionLength)
}

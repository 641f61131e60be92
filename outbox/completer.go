package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/groupcommit"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/patience"
)

// completer stores outcomes, in batches that a [groupcommit.Committer] makes. Until an outcome
// is stored, or the completer is closed, the event stays in the tracker, so nothing delivers
// the event again. An outcome that the database refuses is stored without the text of the failure,
// or kept apart; see completer_refused.go.
type completer struct {
	db      DB
	store   Store
	track   *tracker
	leases  *tableLeases
	metrics Metrics
	clock   Clock
	done    Outcome // OutcomeDone or OutcomeDelete
	byKey   bool    // as in [OrderedByKey]
	told    told

	commit *groupcommit.Committer[*delivery, Outcome]

	deaths                                           logburst.ByCause
	leaseLost, rowless, unstored, textless, refusals logburst.Burst

	// pending are the outcomes that are not stored, from the listener's return on.
	pending atomic.Int64
}

// told is a dispatcher, as it learns of outcomes that are stored.
type told interface {
	tellDepths()
	dueAt(t time.Time)
	wakePoller()
}

func newCompleter(d *Dispatcher, db DB, store Store) *completer {
	c := &completer{
		db: db, store: store, track: d.track, leases: d.leases, metrics: d.metrics, clock: d.clock,
		done: d.doneOutcome, byKey: d.byKey, told: d,
		deaths:    logburst.ByCause{Log: d.log, Level: slog.LevelError, Message: "outbox: event is dead", Single: causeLines},
		leaseLost: logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes were refused, the leases of their events are lost"},
		rowless:   logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes found no row: it was deleted, or its transaction wrote to another table of this name"},
		unstored: logburst.Burst{
			Log: d.log, Level: slog.LevelError, Message: "outbox: outcomes could not be stored, trying again",
			Ended: "outbox: outcomes are stored again",
		},
		textless: logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes are stored without the texts of failures, which the database refuses"},
		refusals: logburst.Burst{Log: d.log, Level: slog.LevelError, Message: "outbox: outcomes that the database refuses are tried again ever more rarely"},
	}
	return c
}

// start lets outcomes be stored in batches. [completer.storeOne] needs no start.
func (c *completer) start(opts DispatchOptions, inOrder bool) {
	c.commit = groupcommit.Start(groupcommit.Config[*delivery, Outcome]{
		Interval: opts.MarkInterval,
		OneByOne: opts.Workers == 1 || c.byKey,
		InOrder:  inOrder,
		Kinds:    []Outcome{OutcomeDone, OutcomeDelete, OutcomeSplit, OutcomeDeferred, OutcomeRetry, OutcomeDead},
		Kind:     func(dl *delivery) Outcome { return dl.outcome },
	}, c)
}

// Store implements [groupcommit.Target].
func (c *completer) Store(within groupcommit.Within, outcome Outcome, group []*delivery) (again, refused []*delivery, err error) {
	defer c.told.tellDepths()
	group, again, refused = c.inTurn(group)
	if len(group) == 0 {
		return again, refused, nil
	}
	left, apart, err := c.markAll(within, outcome, group)
	return append(again, left...), append(refused, apart...), err
}

// inTurn parts outcomes into outcomes that may be stored now, and outcomes that have to wait for
// others. An outcome behind a refused one waits with the refused ones.
func (c *completer) inTurn(group []*delivery) (now, later, refused []*delivery) {
	now, waiting := c.track.inTurn(group)
	for _, d := range waiting {
		if d.behindStuck() {
			refused = append(refused, c.track.stick(d))
		} else {
			later = append(later, d)
		}
	}
	return now, later, refused
}

// Ping implements [groupcommit.Target].
func (c *completer) Ping(ctx context.Context) error {
	_, err := c.store.Now(ctx, c.db)
	return err
}

// Failed implements [groupcommit.Target].
func (c *completer) Failed(outcome Outcome, n int, err error) {
	c.unstored.Add(n, logKeyOutcome, outcome.String(), logKeyError, err.Error())
}

// Recovered implements [groupcommit.Target].
func (c *completer) Recovered() { c.unstored.End() }

// mark stores outcomes of one kind in a statement. It returns the deliveries whose rows were
// left alone, for their leases are lost, and the deliveries whose lease changed meanwhile,
// because this node claimed their rows again: these are to be stored under the new lease.
// The latter include the deliveries whose rows the database skipped.
func (c *completer) mark(ctx context.Context, outcome Outcome, group []*delivery) (lost, again []*delivery, err error) {
	marks := c.track.storing(group)
	outcome = c.storedAs(outcome)
	left, err := c.write(ctx, outcome, group, marks)
	if err != nil {
		for _, d := range group {
			d.repeated = true
		}
		return nil, nil, err
	}
	again, back := c.track.settle(outcome, group, marks, left)
	c.leases.releaser.Release(back)
	for _, d := range group {
		if row, refused := left[d.id()]; refused && !slices.Contains(again, d) && (!d.repeated || !row.shows(outcome)) {
			d.rowless = !row.Exists
			lost = append(lost, d)
		}
	}
	return lost, again, nil
}

func (c *completer) write(ctx context.Context, outcome Outcome, group []*delivery, marks []Mark) (left map[string]RowState, err error) {
	if outcome == OutcomeSplit {
		return c.store.Split(ctx, c.db, c.done, c.splits(group, marks))
	}
	return c.store.Mark(ctx, c.db, outcome, marks)
}

// storeOne stores one outcome at once, for synchronous delivery.
func (c *completer) storeOne(ctx context.Context, d *delivery) error {
	switch {
	case d.outcome == OutcomeReleased:
		return nil
	case d.completed:
		c.observe(d, c.clock.Now())
		return nil
	}
	group := []*delivery{d}
	mark := func() error {
		ctx, cancel := context.WithTimeout(ctx, patience.Longest)
		defer cancel()
		_, _, err := c.mark(ctx, d.outcome, group)
		return err
	}
	err := mark()
	for sqlerr.IsRefused(err) && (escapeTexts(group) || dropTexts(group)) {
		err = mark()
	}
	if err == nil && d.skipped {
		err = errSkipped
	}
	if err != nil {
		return fmt.Errorf("outbox: storing the outcome %s of event %s: %w", d.outcome, d.id(), err)
	}
	c.observe(d, c.clock.Now())
	return nil
}

// close stores the outcomes that are there, for at most the given time, and returns how many outcomes it
// could not store.
func (c *completer) close(limit time.Duration) (lost int) {
	c.commit.Close(limit)
	c.leaseLost.Flush()
	c.rowless.Flush()
	c.unstored.Flush()
	c.textless.Flush()
	c.refusals.Flush()
	return int(c.pending.Load())
}

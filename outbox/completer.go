package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/patience"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Limits of the completer.
const (
	completerBatch    = 1000            // outcomes in one statement, and as many wait before workers do
	completerAlone    = 3 * time.Second // one outcome that is the only one to fail
	completerPart     = 25              // outcomes in one statement after a larger one failed
	completerMinPause = 20 * time.Millisecond
	completerMaxPause = 500 * time.Millisecond // between tries that fail fast
	completerSlowest  = 5 * time.Second        // between tries that take long
	probeTimeout      = 500 * time.Millisecond // one question whether the database answers
	probeTries        = 60                     // of those, until outcomes are tried again all the same
	completerTries    = 3                      // of a batch, until its outcomes are tried one by one and set aside
	completerAside    = 500                    // outcomes set aside; more hold up the rest
	completerStuck    = 10_000                 // outcomes that the database refuses; more hold up the rest
	stuckMinPause     = time.Second            // between tries of those
	stuckMaxPause     = 5 * time.Minute

	// Outcomes in two statements, waiting for one, and set aside; and the first of a batch
	// that gathers.
	completerInHand = 3*completerBatch + completerAside + 1
)

// completer stores outcomes. When it is idle it stores the first one at once. The
// next ones gather for the rest of [DispatchOptions].MarkInterval and while a
// statement is under way, so that few statements compete with the application's
// for the database. A full batch does not wait: there are two goroutines, run and
// assist, so that one of them stores it while the other has a statement under way.
//
// What cannot be stored is tried again until it is, or until the completer is closed:
// meanwhile the events stay in the tracker, so nothing delivers them again. An outcome
// that cannot be stored, as when somebody holds a lock on its row, is set aside, so that
// it does not hold up the rest; when too many are, as when the database is away, workers
// wait. An outcome that the database refuses is stored without what it refuses, or kept
// apart; see completer_refused.go.
type completer struct {
	d     *Dispatcher
	db    DB
	store Store

	in      chan *delivery
	full    chan struct{} // has a token when a batch is full
	stop    chan struct{} // closed: store what is there and end
	refused chan struct{} // closed: take nothing more
	refuse  func()
	ctx     context.Context // of the statements; it ends when closing gives up
	cancel  context.CancelFunc
	failed  chan failure // what assist could not store; closed when it has ended
	done    chan struct{}
	started bool

	leaseLost, rowless, unstored, textless, refusals logburst.Burst

	// These belong to run.
	marked     time.Time // when the last batch began
	aside      []*delivery
	pause      time.Duration // until those are tried again
	stuck      []*delivery   // what the database refuses
	stuckPause time.Duration // until some of those are tried again
	patience   patience.Patience

	// pending are the outcomes that are not stored, from the listener's return on.
	pending atomic.Int64
}

func newCompleter(d *Dispatcher, db DB, store Store) *completer {
	c := &completer{
		d: d, db: db, store: store,
		in: make(chan *delivery, completerBatch), full: make(chan struct{}, 1), stop: make(chan struct{}), refused: make(chan struct{}),
		failed: make(chan failure), done: make(chan struct{}),
		leaseLost: logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes were refused, the leases of their events are lost"},
		rowless:   logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes found no row: it was deleted, or its transaction wrote to another table of this name"},
		unstored: logburst.Burst{
			Log: d.log, Level: slog.LevelError, Message: "outbox: outcomes could not be stored, trying again",
			Ended: "outbox: outcomes are stored again",
		},
	}
	c.textless = logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes are stored without the texts of failures, which the database refuses"}
	c.refusals = logburst.Burst{Log: d.log, Level: slog.LevelError, Message: "outbox: outcomes that the database refuses are tried again ever more rarely"}
	c.refuse = sync.OnceFunc(func() { close(c.refused) })
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *completer) start() {
	c.started = true
	go c.run()
	go c.assist()
}

// submit hands over an outcome; it waits while too many are unstored. False: the
// completer takes nothing more.
func (c *completer) submit(d *delivery) bool {
	select {
	case <-c.refused:
		return false
	default:
	}
	select {
	case c.in <- d:
		if c.isFull() {
			wait.Signal(c.full)
		}
		return true
	case <-c.refused:
		return false
	}
}

func (c *completer) run() {
	defer close(c.done)
	batch := make([]*delivery, 0, completerBatch)
	interval, retry, unstick := time.NewTimer(wait.Never), time.NewTimer(0), time.NewTimer(wait.Never)
	defer interval.Stop()
	defer retry.Stop()
	defer unstick.Stop()
	waiting, sticking := true, false // for retry and for unstick
	for {
		// While the first outcome of a batch waits for the end of the interval, the next
		// ones gather in the channel. None of them wakes run: the switch would cost more than
		// all else that is done for an outcome.
		in, full := c.in, c.full
		if len(batch) > 0 {
			in = nil
		} else {
			full = nil
		}
		select {
		case d := <-in:
			batch = append(batch, d)
			if rest := c.d.opts.MarkInterval - time.Since(c.marked); rest > 0 {
				interval.Reset(rest)
			} else {
				batch = c.persistWaiting(batch)
			}
		case <-interval.C:
			batch = c.persistWaiting(batch)
		case <-full:
			interval.Stop()
			batch = c.persistWaiting(batch)
		case f, open := <-c.failed:
			if open {
				c.takeOver(f)
			}
		case <-retry.C:
			waiting = false
			c.retryAside()
		case <-unstick.C:
			sticking = false
			c.retryStuck()
		case <-c.stop:
			c.finish(batch)
			return
		}
		if len(c.aside) > 0 && !waiting {
			retry.Reset(c.pause)
			waiting = true
		}
		if len(c.stuck) > 0 && !sticking {
			unstick.Reset(c.stuckPause)
			sticking = true
		}
	}
}

// finish stores what is left, as far as the closing's time allows.
func (c *completer) finish(batch []*delivery) {
	for batch = c.gather(batch); len(batch) > 0; batch = c.gather(batch[:0]) {
		c.persist(batch)
	}
	for f := range c.failed {
		c.takeOver(f)
	}
	for len(c.aside) > 0 && c.ctx.Err() == nil {
		wait.Sleep(c.ctx, min(c.pause, completerMaxPause))
		c.retryAside()
	}
}

// gather adds what waits, without waiting.
func (c *completer) gather(batch []*delivery) []*delivery {
	for len(batch) < completerBatch {
		select {
		case d := <-c.in:
			batch = append(batch, d)
		default:
			return batch
		}
	}
	return batch
}

// persistWaiting stores a batch with what waits, and returns it empty.
func (c *completer) persistWaiting(batch []*delivery) []*delivery {
	c.marked = time.Now()
	c.persist(c.gather(batch))
	return batch[:0]
}

// isFull reports whether enough outcomes wait for a batch, with the one that run has
// while they gather.
func (c *completer) isFull() bool { return len(c.in) >= completerBatch-1 }

// mark stores one kind of outcome. It returns the deliveries whose rows were
// left alone, for their leases are lost, and those whose lease changed meanwhile,
// because this node claimed their rows again: these are to be stored under that. Those
// whose rows the database skipped are among the latter.
func (c *completer) mark(ctx context.Context, outcome Outcome, group []*delivery, limit time.Duration) (lost, again []*delivery, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	marks := c.d.track.storing(group)
	outcome = c.d.storedAs(outcome)
	left, err := c.write(ctx, outcome, group, marks)
	if err != nil {
		for _, d := range group {
			d.repeated = true
		}
		return nil, nil, err
	}
	again, back := c.d.track.settle(outcome, group, marks, left)
	c.d.releaser.release(back)
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
		return c.store.Split(ctx, c.db, c.d.doneOutcome, c.d.splits(group, marks))
	}
	return c.store.Mark(ctx, c.db, outcome, marks)
}

// storeOne stores one outcome at once, for synchronous delivery.
func (c *completer) storeOne(ctx context.Context, d *delivery) error {
	switch {
	case d.outcome == OutcomeReleased:
		return nil
	case d.completed:
		c.observe(d, c.d.clock.Now())
		return nil
	}
	group := []*delivery{d}
	_, _, err := c.mark(ctx, d.outcome, group, patience.Max)
	for sqlerr.IsRefused(err) && (escapeTexts(group) || dropTexts(group)) {
		_, _, err = c.mark(ctx, d.outcome, group, patience.Max)
	}
	if err == nil && d.skipped {
		err = errSkipped
	}
	if err != nil {
		return fmt.Errorf("outbox: storing the outcome %s of event %s: %w", d.outcome, d.id(), err)
	}
	c.observe(d, c.d.clock.Now())
	return nil
}

// close stores what is there, for at most the given time, and returns how many
// outcomes it could not store. It does not wait for a statement of a driver that ignores
// the end of its context.
func (c *completer) close(limit time.Duration) (lost int) {
	if !c.started {
		return 0
	}
	close(c.stop)
	if !wait.For(context.Background(), c.done, limit) {
		c.cancel()
		wait.For(context.Background(), c.done, wait.Grace)
	}
	c.cancel()
	c.leaseLost.Flush()
	c.rowless.Flush()
	c.unstored.Flush()
	c.textless.Flush()
	c.refusals.Flush()
	return int(c.pending.Load())
}

package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Limits of the completer.
const (
	completerBatch    = 500                    // outcomes in one statement
	completerBuffer   = 2 * 500                // outcomes that wait before workers do
	completerTimeout  = 30 * time.Second       // one statement, when the database is slow for all
	completerPatience = 2 * time.Second        // one statement, as long as it is not
	completerAlone    = 3 * time.Second        // one outcome that is the only one to fail
	completerPart     = 25                     // outcomes in one statement after a larger one failed
	completerTurn     = 500 * time.Millisecond // for a claim to end
	completerLastCall = 500 * time.Millisecond
	completerMinPause = 20 * time.Millisecond
	completerMaxPause = 5 * time.Second // between tries
	completerTries    = 3               // of a batch, until its outcomes are tried one by one and set aside
	completerAside    = 500             // outcomes set aside; more hold up the rest
)

// completer stores outcomes. While one statement is under way the next batch
// gathers; when it is idle it writes at once. What cannot be stored is tried
// again until it is, or until the completer is closed: meanwhile the events stay
// in the tracker, so nothing delivers them again. An outcome that cannot be
// stored, as when somebody holds a lock on its row, is set aside, so that it does
// not hold up the rest; when too many are, as when the database is away, workers
// wait.
type completer struct {
	d     *Dispatcher
	db    DB
	store Store
	owner string // empty: no leases, no fencing

	in      chan outcome
	stop    chan struct{} // closed: store what is there and end
	refused chan struct{} // closed: take nothing more
	refuse  func()
	ctx     context.Context // of the statements; it ends when closing gives up
	cancel  context.CancelFunc
	done    chan struct{}
	started bool

	leaseLost, unstored burst

	// These belong to run.
	aside    []outcome
	pause    time.Duration // until those are tried again
	patience time.Duration // with one statement

	mu       sync.Mutex
	releases []outcome // leases to give up, from goroutines that must not wait
	ended    bool      // nobody takes releases any more
	lost     int       // outcomes given up at closing
	wakeup   chan struct{}
}

func newCompleter(d *Dispatcher, db DB, store Store) *completer {
	c := &completer{
		d: d, db: db, store: store,
		in: make(chan outcome, completerBuffer), stop: make(chan struct{}), refused: make(chan struct{}),
		done: make(chan struct{}), wakeup: make(chan struct{}, 1), patience: completerPatience,
		leaseLost: burst{log: d.log, level: slog.LevelWarn, message: "outbox: outcomes were refused, other nodes hold the events now"},
		unstored:  burst{log: d.log, level: slog.LevelError, message: "outbox: outcomes could not be stored, trying again"},
	}
	c.refuse = sync.OnceFunc(func() { close(c.refused) })
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *completer) start() {
	c.started = true
	go c.run()
}

// submit hands over an outcome; it waits while too many are unstored. False: the
// completer takes nothing more.
func (c *completer) submit(o outcome) bool {
	select {
	case <-c.refused:
		return false
	default:
	}
	select {
	case c.in <- o:
		return true
	case <-c.refused:
		return false
	}
}

// releaseLeases gives up the leases of events soon, without waiting; false after
// closing. leased is when the leases began, or zero when that is not known.
func (c *completer) releaseLeases(ids []string, leased time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	for _, id := range ids {
		c.releases = append(c.releases, outcome{kind: OutcomeReleased, mark: Mark{EventID: id}, leased: leased})
	}
	signal(c.wakeup)
	return true
}

// takeReleases takes the leases to give up; last: from now on none are taken.
func (c *completer) takeReleases(last bool) []outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.releases
	c.releases, c.ended = nil, last
	return r
}

// releaseNow gives up leases at once, in one statement that only the caller may
// try again, and returns how many it found.
func (c *completer) releaseNow(ctx context.Context, ids []string) (int, error) {
	marks := make([]Mark, len(ids))
	for i, id := range ids {
		marks[i] = Mark{EventID: id}
	}
	n, err := markOwned(ctx, c.store, c.db, OutcomeReleased, c.owner, marks)
	if n > 0 {
		c.d.wakePoller()
	}
	return n, err
}

func (c *completer) run() {
	defer close(c.done)
	batch := make([]outcome, 0, completerBatch)
	retry := time.NewTimer(0)
	waiting := true // for retry
	defer retry.Stop()
	for {
		batch = batch[:0]
		select {
		case o := <-c.in:
			batch = append(batch, o)
		case <-c.wakeup:
		case <-retry.C:
			waiting = false
			c.retryAside()
		case <-c.stop:
			c.finish(batch)
			return
		}
		c.persist(c.gather(batch))
		c.persistReleases(false)
		if len(c.aside) > 0 && !waiting {
			retry.Reset(c.pause)
			waiting = true
		}
	}
}

// finish stores what is left, as far as the closing's time allows.
func (c *completer) finish(batch []outcome) {
	for batch = c.gather(batch); len(batch) > 0; batch = c.gather(batch[:0]) {
		c.persist(batch)
	}
	c.persistReleases(true)
	for len(c.aside) > 0 && c.ctx.Err() == nil {
		sleep(c.ctx, min(c.pause, completerLastCall))
		c.retryAside()
	}
	c.giveUp(len(c.aside))
}

func (c *completer) persistReleases(last bool) {
	for releases := c.takeReleases(last); len(releases) > 0; {
		n := min(len(releases), completerBatch)
		c.persist(releases[:n])
		releases = releases[n:]
	}
}

// gather adds what waits, without waiting.
func (c *completer) gather(batch []outcome) []outcome {
	for len(batch) < completerBatch {
		select {
		case o := <-c.in:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

func (c *completer) mark(ctx context.Context, kind Outcome, group []*outcome, limit time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	claimable := c.owner != "" && kind != OutcomeDone && kind != OutcomeDelete // afterwards
	if claimable {
		c.d.track.store(trackedEnvs(group))
	}
	if claimable && slices.ContainsFunc(group, func(o *outcome) bool { return c.reclaimable(o, limit) }) {
		n, err = c.markAgain(ctx, kind, group)
	} else {
		n, err = c.markOnce(ctx, kind, group)
	}
	for _, o := range group {
		o.tried = o.tried || err != nil
	}
	return n, err
}

func (c *completer) markOnce(ctx context.Context, kind Outcome, group []*outcome) (int, error) {
	marks := make([]Mark, len(group))
	for i, o := range group {
		marks[i] = o.mark
	}
	return markOwned(ctx, c.store, c.db, kind, c.owner, marks)
}

// reclaimable reports whether this node may have claimed a row anew before a
// statement has ended: the answer to an earlier one was lost, or the lease to give
// up may have expired.
func (c *completer) reclaimable(o *outcome, limit time.Duration) bool {
	return o.tried || o.env == nil && time.Since(o.leased)+limit >= c.d.claim.LockTimeout
}

// errClaiming is why a statement was not tried.
var errClaiming = errors.New("a claim takes too long to wait for it")

// markAgain is mark for rows that this node may have claimed anew. The new lease
// looks like the old one, so those are left out, and nothing is claimed until the
// statement has ended. They count as changed. A claim may hang, so it is not waited
// for long: the outcomes of others come behind.
func (c *completer) markAgain(ctx context.Context, kind Outcome, group []*outcome) (int, error) {
	turn, cancel := context.WithTimeout(ctx, completerTurn)
	defer cancel()
	if c.d.beginClaim(turn) != nil {
		return 0, errClaiming
	}
	defer c.d.endClaim()
	left := make([]*outcome, 0, len(group))
	for _, o := range group {
		if o.overtaken = c.d.track.claimedAnew(o.mark.EventID, o.env); !o.overtaken {
			left = append(left, o)
		}
	}
	if len(left) == 0 {
		return len(group), nil
	}
	n, err := c.markOnce(ctx, kind, left)
	return n + len(group) - len(left), err
}

// storeOne stores one outcome at once, for synchronous delivery.
func (c *completer) storeOne(ctx context.Context, o *outcome) error {
	n, err := c.mark(ctx, o.kind, []*outcome{o}, completerTimeout)
	if err != nil {
		return fmt.Errorf("outbox: storing the outcome %s of event %s: %w", o.kind, o.env.EventID, err)
	}
	if o.kind == OutcomeReleased {
		return nil
	}
	if _, lost := c.accepted(ctx, o.kind, []*outcome{o}, n); lost > 0 {
		c.d.metrics.LeaseLost(lost)
		return fmt.Errorf("outbox: storing the outcome %s of event %s: %w", o.kind, o.env.EventID, ErrLeaseLost)
	}
	c.observe(o, c.d.clock.Now())
	return nil
}

// giveUp counts outcomes that could not be stored before the completer closed.
func (c *completer) giveUp(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += n
}

// close stores what is there, for at most the given time.
func (c *completer) close(limit time.Duration) error {
	if !c.started {
		return nil
	}
	close(c.stop)
	if !waitFor(context.Background(), c.done, limit) {
		c.cancel()
		<-c.done
	}
	c.refuse()
	c.cancel()
	c.leaseLost.flush()
	c.unstored.flush()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost > 0 {
		return fmt.Errorf("outbox: closing the dispatcher: %d outcomes could not be stored; their events will be delivered again", c.lost)
	}
	return nil
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

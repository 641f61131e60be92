package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Limits of the completer.
const (
	completerBatch    = 500              // outcomes in one statement
	completerBuffer   = 2 * 500          // outcomes that wait before workers do
	completerTimeout  = 30 * time.Second // one statement
	completerMaxPause = 5 * time.Second  // between tries
	completerSplit    = 3                // failures of a batch until its outcomes are tried one by one
)

// completer stores outcomes. While one statement is under way the next batch
// gathers; when it is idle it writes at once. What cannot be stored is tried
// again until it is, or until the completer is closed: meanwhile the events stay
// in the tracker, so nothing delivers them again, and workers wait.
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

	mu       sync.Mutex
	releases []outcome // leases to give up, from goroutines that must not wait
	lost     int       // outcomes given up at closing
	wakeup   chan struct{}
}

func newCompleter(d *Dispatcher, db DB, store Store) *completer {
	c := &completer{
		d: d, db: db, store: store,
		in: make(chan outcome, completerBuffer), stop: make(chan struct{}), refused: make(chan struct{}),
		done: make(chan struct{}), wakeup: make(chan struct{}, 1),
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

// releaseLease gives up the lease of an event soon, without waiting.
func (c *completer) releaseLease(id string) {
	c.mu.Lock()
	c.releases = append(c.releases, outcome{kind: MarkReleased, mark: Mark{EventID: id}})
	c.mu.Unlock()
	signal(c.wakeup)
}

func (c *completer) takeReleases() []outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.releases
	c.releases = nil
	return r
}

func (c *completer) run() {
	defer close(c.done)
	batch := make([]outcome, 0, completerBatch)
	for stopping := false; !stopping; {
		batch = batch[:0]
		select {
		case o := <-c.in:
			batch = append(batch, o)
		case <-c.wakeup:
		case <-c.stop:
			stopping = true
		}
		for {
			batch = c.gather(batch)
			if len(batch) == 0 {
				break
			}
			c.persist(batch)
			if !stopping {
				break
			}
			batch = batch[:0]
		}
		for releases := c.takeReleases(); len(releases) > 0; {
			n := min(len(releases), completerBatch)
			c.persist(releases[:n])
			releases = releases[n:]
		}
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

// markKinds are the kinds in the order in which they are stored.
var markKinds = [...]MarkKind{MarkDone, MarkDelete, MarkReleased, MarkDeferred, MarkRetry, MarkDead}

// persist stores a batch, one statement for each kind of outcome in it.
func (c *completer) persist(batch []outcome) {
	group := make([]*outcome, 0, len(batch))
	for _, kind := range markKinds {
		group = group[:0]
		for i := range batch {
			if batch[i].kind == kind {
				group = append(group, &batch[i])
			}
		}
		if len(group) > 0 {
			c.persistKind(kind, group)
		}
	}
	c.d.metrics.QueueDepths(c.d.depths())
}

// persistKind tries until the outcomes are stored or the completer gives up.
func (c *completer) persistKind(kind MarkKind, group []*outcome) {
	pause := 20 * time.Millisecond
	if c.owner != "" {
		c.d.track.store(trackedIDs(group))
	}
	for try := 1; ; try++ {
		stored, err := c.mark(c.ctx, kind, group)
		if err == nil {
			c.stored(kind, group, stored)
			return
		}
		if try >= completerSplit && len(group) > 1 {
			// One outcome that cannot be stored must not hold up the rest.
			if group = c.persistSingly(kind, group); len(group) == 0 {
				return
			}
		}
		if c.ctx.Err() != nil {
			c.giveUp(group)
			return
		}
		c.d.log.Error("outbox: outcomes could not be stored, trying again", logKeyOutcome, kind.String(),
			logKeyCount, len(group), logKeyDelay, pause, logKeyError, err.Error())
		sleep(c.ctx, pause)
		pause = min(2*pause, completerMaxPause)
	}
}

// persistSingly returns the outcomes that failed.
func (c *completer) persistSingly(kind MarkKind, group []*outcome) []*outcome {
	var failed []*outcome
	for i := range group {
		n, err := c.mark(c.ctx, kind, group[i:i+1])
		if err != nil {
			failed = append(failed, group[i])
			continue
		}
		c.stored(kind, group[i:i+1], n)
	}
	return failed
}

func (c *completer) mark(ctx context.Context, kind MarkKind, group []*outcome) (int, error) {
	marks := make([]Mark, len(group))
	for i, o := range group {
		marks[i] = o.mark
	}
	ctx, cancel := context.WithTimeout(ctx, completerTimeout)
	defer cancel()
	return c.store.Mark(ctx, c.db, kind, c.owner, marks)
}

// stored lets go of events whose outcome is stored, and tells of it.
func (c *completer) stored(kind MarkKind, group []*outcome, n int) {
	if ids := trackedIDs(group); c.owner != "" {
		c.d.track.stored(ids)
	} else {
		c.d.track.release(ids...)
	}
	if lost := len(group) - n; lost > 0 && c.owner != "" && kind != MarkReleased {
		c.d.metrics.LeaseLost(lost)
		c.d.log.Warn("outbox: outcomes were refused, other nodes hold the events now",
			logKeyOutcome, kind.String(), logKeyCount, lost, logKeyOwner, c.owner, logKeyError, ErrLeaseLost.Error())
	}
	now := c.d.clock.Now()
	for _, o := range group {
		c.observe(o, now)
	}
	if kind == MarkReleased {
		if p := c.d.poller.Load(); p != nil {
			p.Wake()
		}
	}
}

// trackedIDs are the events of a group that the tracker holds; a lease given up
// early is of no event in flight.
func trackedIDs(group []*outcome) []string {
	ids := make([]string, 0, len(group))
	for _, o := range group {
		if o.env != nil {
			ids = append(ids, o.mark.EventID)
		}
	}
	return ids
}

func (c *completer) observe(o *outcome, now time.Time) {
	m := c.d.metrics
	switch o.kind {
	case MarkDone, MarkDelete:
		m.Delivered(kindOf(o.env), now.Sub(o.env.OccurredAt))
	case MarkRetry:
		m.Failed(kindOf(o.env))
		c.d.dueAt(o.mark.AvailableAt)
	case MarkDeferred:
		m.Deferred(kindOf(o.env))
		c.d.dueAt(o.mark.AvailableAt)
	case MarkDead:
		m.Died(kindOf(o.env))
		attempts := o.env.Attempts
		if o.mark.CountAttempt {
			attempts++
		}
		attrs := []any{logKeyEventID, o.env.EventID, logKeyEventType, string(o.env.EventType),
			logKeyAggregateType, string(o.env.AggregateType), logKeyAttempts, attempts, logKeyError, o.mark.Error}
		var p *PanicError
		if errors.As(o.err, &p) {
			attrs = append(attrs, logKeyStack, string(p.Stack))
		}
		c.d.log.Error("outbox: event is dead", attrs...)
	case MarkReleased:
	}
}

// storeOne stores one outcome at once, for synchronous delivery.
func (c *completer) storeOne(ctx context.Context, o *outcome) error {
	n, err := c.mark(ctx, o.kind, []*outcome{o})
	if err != nil {
		return fmt.Errorf("outbox: storing the outcome %s of event %s: %w", o.kind, o.env.EventID, err)
	}
	c.observe(o, c.d.clock.Now())
	if n == 0 && c.owner != "" && o.kind != MarkReleased {
		return fmt.Errorf("outbox: storing the outcome %s of event %s: %w", o.kind, o.env.EventID, ErrLeaseLost)
	}
	return nil
}

func (c *completer) giveUp(group []*outcome) {
	for _, o := range group {
		c.d.track.release(o.mark.EventID)
	}
	c.d.log.Error("outbox: closed before outcomes were stored, their events will be delivered again", logKeyCount, len(group))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += len(group)
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

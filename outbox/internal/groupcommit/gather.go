// Package groupcommit stores items in batches, so that few statements compete with the
// statements of the application for the database.
//
// An idle [Committer] stores the first item at once. The next items gather for the rest of
// the interval, and while a statement is under way. A full batch does not wait: a second
// goroutine stores a full batch while the first goroutine has a statement under way.
//
// A [Committer] tries an item again until the item is stored or the committer is closed. An
// item that cannot be stored, for example because a row is locked, is set aside, so that the item
// does not hold up the rest. When too many items are aside, Submit waits. An item that the
// database refuses is kept apart and tried ever more rarely.
//
// gather.go makes batches of items; retry.go decides what happens to items that a statement did not
// store. How to store items is the business of the [Target].
package groupcommit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/patience"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const (
	// Batch is the most items that a statement stores. As many items may wait before Submit waits.
	Batch = 1000
	// InHand is how many items a committer has at most, without the items that the database
	// refuses: in two statements, waiting for a statement, aside, and the first item of a
	// batch that gathers.
	InHand = 3*Batch + mostAside + 1
)

// Config configures a [Committer].
type Config[T, K any] struct {
	// Interval is the least time between the beginnings of two batches.
	Interval time.Duration
	// OneByOne ends each statement before the next statement begins.
	OneByOne bool
	// InOrder lets the items behind an item that cannot be stored wait for this item, instead of
	// setting it aside. InOrder needs OneByOne.
	InOrder bool
	// Kinds are the kinds of items, in the order in which they are stored.
	Kinds []K
	// Kind is the kind of an item. Items of the same kind go into the same statement.
	Kind func(T) K
}

// Target stores the items of a [Committer]. Two goroutines call a Target, unless Config.OneByOne is
// set.
type Target[T, K any] interface {
	// Store stores items of the same kind, and runs each statement through within. Store returns
	// the items that are to be tried again soon: after an error all items that were not stored,
	// else items whose turn has not come. Store also returns the items that the database refuses in
	// any form. Store may return the slice group.
	Store(within Within, kind K, group []T) (again, refused []T, err error)
	// Ping asks the database for any answer.
	Ping(ctx context.Context) error
	// Failed notes that Store failed for n items of a kind.
	Failed(kind K, n int, err error)
	// Recovered notes that no item is aside.
	Recovered()
}

// Within runs a statement with a context that ends at the time limit for statements. The limit
// follows how long earlier statements took.
type Within func(statement func(ctx context.Context) error) error

// Committer stores items. Make a Committer with [Start]. Submit, Refuse and StoreNow are safe for
// concurrent use.
type Committer[T any, K comparable] struct {
	Config[T, K]
	target Target[T, K]

	in      chan T
	full    chan struct{} // has a token when a batch is full
	stop    chan struct{} // closed: store the items that are there, and end
	closing chan struct{} // closed: take nothing more
	refuse  func()
	ctx     context.Context // of the statements; it ends when closing gives up
	cancel  context.CancelFunc
	failed  chan failure[T, K] // items that assist could not store; closed when assist has ended
	done    chan struct{}

	retries[T, K]
	marked time.Time // when the last batch of run began
}

// failure are the items that Store did not store, and how long Store took.
type failure[T, K any] struct {
	kind           K
	again, refused []T
	err            error
	took           time.Duration
}

// Start makes a committer and starts its two goroutines.
func Start[T any, K comparable](cfg Config[T, K], target Target[T, K]) *Committer[T, K] {
	c := &Committer[T, K]{
		Config: cfg, target: target,
		in: make(chan T, Batch), full: make(chan struct{}, 1), stop: make(chan struct{}), closing: make(chan struct{}),
		failed: make(chan failure[T, K]), done: make(chan struct{}),
	}
	c.refuse = sync.OnceFunc(func() { close(c.closing) })
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	go c.assist()
	return c
}

// Submit hands over an item. Submit waits while too many items are not stored. False: the
// committer takes nothing more.
func (c *Committer[T, K]) Submit(item T) bool {
	select {
	case <-c.closing:
		return false
	default:
	}
	select {
	case c.in <- item:
		if c.isFull() {
			c.StoreNow()
		}
		return true
	case <-c.closing:
		return false
	}
}

// StoreNow ends the gathering of the present batch. StoreNow needs OneByOne: else the second
// goroutine may take the signal for a full batch that the first goroutine took.
func (c *Committer[T, K]) StoreNow() { wait.Signal(c.full) }

// Refuse makes Submit return false from now on.
func (c *Committer[T, K]) Refuse() { c.refuse() }

// Close stores the items that are there, for at most the given time. Close does not wait for a
// statement of a driver that ignores the end of a context. Call Refuse before.
func (c *Committer[T, K]) Close(limit time.Duration) {
	close(c.stop)
	if !wait.For(context.Background(), c.done, limit) {
		c.cancel()
		wait.For(context.Background(), c.done, wait.Grace)
	}
	c.cancel()
}

func (c *Committer[T, K]) run() {
	defer close(c.done)
	batch := make([]T, 0, Batch)
	interval, retry, unstick := time.NewTimer(wait.Never), time.NewTimer(0), time.NewTimer(wait.Never)
	defer interval.Stop()
	defer retry.Stop()
	defer unstick.Stop()
	waiting, sticking := true, false // for retry and for unstick
	for {
		// While the first item of a batch waits for the end of the interval, the next items
		// gather in the channel without waking run: the switch would cost more than all else
		// that is done for an item.
		in, full := c.in, c.full
		if len(batch) > 0 {
			in = nil
		} else {
			full = nil
		}
		select {
		case item := <-in:
			batch = append(batch, item)
			if rest := c.Interval - time.Since(c.marked); rest > 0 {
				interval.Reset(rest)
			} else {
				batch = c.storeWaiting(batch)
			}
		case <-interval.C:
			batch = c.storeWaiting(batch)
		case <-full:
			interval.Stop()
			batch = c.storeWaiting(batch)
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

// finish stores the items that are left, as far as the time for closing allows.
func (c *Committer[T, K]) finish(batch []T) {
	for batch = c.gather(batch); len(batch) > 0; batch = c.gather(batch[:0]) {
		c.storeBatch(batch)
	}
	for f := range c.failed {
		c.takeOver(f)
	}
	for len(c.aside) > 0 && c.ctx.Err() == nil {
		wait.Sleep(c.ctx, min(c.pause, maxPause))
		c.retryAside()
	}
}

// gather adds to a batch the items that wait in the channel. gather does not wait.
func (c *Committer[T, K]) gather(batch []T) []T {
	for len(batch) < Batch {
		select {
		case item := <-c.in:
			batch = append(batch, item)
		default:
			return batch
		}
	}
	return batch
}

// storeWaiting stores a batch with the items that wait, and returns the batch empty.
func (c *Committer[T, K]) storeWaiting(batch []T) []T {
	c.marked = time.Now()
	c.storeBatch(c.gather(batch))
	return batch[:0]
}

// storeBatch stores a batch, with a statement for each kind of item.
func (c *Committer[T, K]) storeBatch(batch []T) {
	c.byKind(batch, func(kind K, group []T) { c.store(kind, group, c.patience.Now()) })
}

// byKind calls store for the items of each kind. The slice of items is used again
// afterwards.
func (c *Committer[T, K]) byKind(batch []T, store func(K, []T)) {
	group := make([]T, 0, len(batch))
	for _, kind := range c.Kinds {
		group = group[:0]
		for _, item := range batch {
			if c.Kind(item) == kind {
				group = append(group, item)
			}
		}
		if len(group) > 0 {
			store(kind, group)
		}
	}
}

// isFull reports whether enough items wait for a batch, with the item that run has while
// they gather.
func (c *Committer[T, K]) isFull() bool { return len(c.in) >= Batch-1 }

// assist stores a full batch that run has not taken. assist tries once, and leaves to run
// the items that it cannot store.
func (c *Committer[T, K]) assist() {
	defer close(c.failed)
	full := c.full
	if c.OneByOne {
		full = nil
	}
	var patient patience.Patience
	within := func(statement func(context.Context) error) error { return patient.Statement(c.ctx, statement) }
	batch := make([]T, 0, Batch)
	for {
		select {
		case <-full:
		case <-c.stop:
			return
		}
		if !c.isFull() { // run took the batch
			continue
		}
		c.byKind(c.gather(batch[:0]), func(kind K, group []T) {
			if f, failed := c.try(within, kind, group); failed {
				f.again = slices.Clone(f.again)
				c.failed <- f
			}
		})
	}
}

// try stores items, reports whether any item is left, and notes an error.
func (c *Committer[T, K]) try(within Within, kind K, group []T) (f failure[T, K], failed bool) {
	began := time.Now()
	f.kind = kind
	f.again, f.refused, f.err = c.target.Store(within, kind, group)
	f.took = time.Since(began)
	if f.err != nil {
		c.target.Failed(kind, len(f.again), f.err)
	}
	return f, len(f.again)+len(f.refused) > 0 || f.err != nil
}

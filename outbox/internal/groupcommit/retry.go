package groupcommit

import (
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/patience"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const (
	part      = 25                    // items in one statement after a larger statement failed
	alone     = 3 * time.Second       // limit of an item that is the only item to fail
	minPause  = 20 * time.Millisecond // between tries
	maxPause  = 500 * time.Millisecond
	slowest   = 5 * time.Second        // between tries that take long
	probe     = 500 * time.Millisecond // a question whether the database answers
	probes    = 60                     // questions until items are tried again all the same
	tries     = 3                      // of a batch, until the items are tried one by one and set aside
	mostAside = 500                    // items aside; more hold up the rest
	mostStuck = 10_000                 // items that the database refuses; more are set aside

	minStuckPause = time.Second // between tries of items that the database refuses
	maxStuckPause = 5 * time.Minute
)

// retries are the items that could not be stored. The fields belong to run.
type retries[T, K any] struct {
	aside      []T
	pause      time.Duration // until the items aside are tried again
	stuck      []T           // items that the database refuses
	stuckPause time.Duration // until some of them are tried again
	patience   patience.Patience
}

// within limits the statements of run. Only a success says how much patience the next
// statement needs: after failures [Committer.storeParts] grows the limit.
func (c *Committer[T, K]) within(limit time.Duration) Within {
	return func(statement func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		defer cancel()
		began := time.Now()
		err := statement(ctx)
		if err == nil {
			c.patience.Took(time.Since(began), nil)
		}
		return err
	}
}

// store stores items of a kind, at once or by tryAgain.
func (c *Committer[T, K]) store(kind K, group []T, limit time.Duration) {
	if f := c.attempt(kind, group, limit); f.err != nil {
		c.tryAgain(f)
	}
}

// attempt tries once to store items. Without an error it also sets aside the items that are
// left, and keeps apart the items that are refused.
func (c *Committer[T, K]) attempt(kind K, group []T, limit time.Duration) failure[T, K] {
	f, _ := c.try(c.within(limit), kind, group)
	c.keep(f.refused)
	if f.err == nil {
		c.setAside(f.again)
		if len(c.aside) == 0 {
			c.target.Recovered()
		}
	}
	return f
}

// takeOver stores the items that assist could not store.
func (c *Committer[T, K]) takeOver(f failure[T, K]) {
	c.keep(f.refused)
	if f.err != nil {
		c.tryAgain(f)
	} else {
		c.setAside(f.again)
	}
}

// tryAgain tries items a few times, or once more in parts if the failure took long, and then sets
// aside the items that cannot be stored. When too many are aside already, tryAgain goes on trying,
// and with InOrder in any case.
func (c *Committer[T, K]) tryAgain(f failure[T, K]) {
	pause := minPause
	for try := 1; f.err != nil; try++ {
		if !c.waitOutSilence(f.took) {
			inOrder := c.InOrder && c.ctx.Err() == nil // later items wait for these
			if slow := f.took >= patience.Shortest/2; !inOrder && (slow || try >= tries) {
				f.again = c.storeParts(f.kind, f.again)
				if c.ctx.Err() != nil || len(c.aside)+len(f.again) <= mostAside {
					c.setAside(f.again)
					return
				}
				c.retryAside()
			}
			wait.Sleep(c.ctx, pause)
			pause = min(2*pause, maxPause)
		}
		f = c.attempt(f.kind, f.again, c.patience.Now())
	}
}

// storeParts stores items that failed together in parts, and returns the items that failed again.
// When no item can be stored, the database is probably slow, and the next statements get more time.
func (c *Committer[T, K]) storeParts(kind K, group []T) []T {
	if len(group) == 1 {
		return slices.Clone(group)
	}
	size, failed := part, 0
	if len(group) <= size {
		size = 1
	}
	left := c.storeEach(kind, group, size, &failed)
	if len(left) == len(group) {
		c.patience.Grow()
	}
	return left
}

// storeEach stores items in parts, and the items of a part that fails one by one. The result is the
// items that were not tried, because two items had failed before, and then the items that failed.
// So the next call starts with the items that were not tried.
func (c *Committer[T, K]) storeEach(kind K, group []T, size int, failed *int) []T {
	var left []T
	for len(group) > 0 && *failed < 2 {
		part := group[:min(size, len(group))]
		group = group[len(part):]
		switch f := c.attempt(kind, part, c.patience.Now()/2); {
		case f.err == nil:
		case len(part) == 1:
			*failed++
			left = append(left, f.again...)
		default:
			left = append(left, c.storeEach(kind, f.again, 1, failed)...)
		}
	}
	return append(slices.Clone(group), left...)
}

// waitOutSilence pings a database that took long to fail, until the database answers. So items are
// stored soon after a silent database is back, however long it was away. waitOutSilence reports
// false when the database answers at once: then a row is locked, or the database is slow.
func (c *Committer[T, K]) waitOutSilence(took time.Duration) (silent bool) {
	if took < patience.Shortest/4 {
		return false
	}
	for range probes {
		ctx, cancel := context.WithTimeout(c.ctx, probe)
		err := c.target.Ping(ctx)
		cancel()
		if err == nil || c.ctx.Err() != nil {
			break
		}
		silent = true
		wait.Sleep(c.ctx, minPause)
	}
	return silent
}

func (c *Committer[T, K]) setAside(group []T) {
	if len(group) == 0 {
		return
	}
	c.pause = max(c.pause, minPause)
	c.aside = append(c.aside, group...)
}

// retryAside tries the items that were set aside. The other items wait meanwhile, so
// retryAside takes little time, and comes again the later the more time it took.
func (c *Committer[T, K]) retryAside() {
	if len(c.aside) == 0 {
		return
	}
	began, again := time.Now(), c.aside
	c.aside, c.pause = nil, min(2*c.pause, maxPause)
	c.byKind(again, func(kind K, group []T) {
		f := c.attempt(kind, group, c.asidePatience(len(again)))
		switch {
		case f.err == nil:
		case c.waitOutSilence(f.took):
			c.setAside(f.again)
			began, c.pause = time.Now(), minPause
		default:
			c.setAside(c.storeParts(kind, f.again))
		}
	})
	c.pause = max(c.pause, min(4*time.Since(began), slowest))
	if len(c.aside) == 0 {
		c.pause = 0
	}
}

// asidePatience is the limit for items that were set aside. An item that fails alone gets more time
// with each try, because nothing else may ever show that the database is slow.
func (c *Committer[T, K]) asidePatience(n int) time.Duration {
	half := c.patience.Now() / 2
	if n > 1 {
		return half
	}
	return min(max(c.pause/2, half), alone)
}

// keep keeps apart items that the database refuses. When there are too many, they are set
// aside, and hold up the rest.
func (c *Committer[T, K]) keep(refused []T) {
	for _, item := range refused {
		if len(c.stuck) >= mostStuck {
			c.setAside([]T{item})
			continue
		}
		c.stuckPause = max(c.stuckPause, minStuckPause)
		c.stuck = append(c.stuck, item)
	}
}

// retryStuck tries some of the items that were refused, and goes on while they are stored.
func (c *Committer[T, K]) retryStuck() {
	for {
		n := len(c.stuck)
		some := c.stuck[:min(n, part)]
		c.stuck = slices.Clone(c.stuck[len(some):])
		c.byKind(some, func(kind K, group []T) {
			if f := c.attempt(kind, group, c.patience.Now()); f.err != nil {
				c.setAside(f.again)
			}
		})
		switch stored := n - len(c.stuck); {
		case len(c.stuck) == 0:
			c.stuckPause = 0
			return
		case stored == 0:
			c.stuckPause = min(2*c.stuckPause, maxStuckPause)
			return
		case stored < len(some):
			c.stuckPause = minStuckPause
			return
		}
	}
}

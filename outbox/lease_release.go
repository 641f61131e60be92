package outbox

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Limits of the lease releaser.
const (
	releaseBatch   = 500                   // leases in one statement
	releasePause   = 10 * time.Millisecond // until the second try
	releaseRetry   = 50 * time.Millisecond // between tries while closing
	releaseTimeout = 2 * time.Second       // one statement: a row may be locked by what is in doubt
	releaseLimit   = 100_000               // leases kept at once
	lateTimeout    = 5 * time.Second       // leases given back after closing
)

// leaseReleaser gives leases back: of events that no listener had, of events that may
// or may not have been committed, and of claims that failed. Of a failed claim it does not
// know the events, so it asks for the rows under its lease. The server may still be
// executing the COMMIT or the claim; then there is nothing to release yet. What does not
// take effect is tried again, after 10 ms, 100 ms, 1 s, and then ever more
// rarely for as long as the lease lasts. A release that is repeated, or carried
// out late, changes nothing but its own lease. The releaser has a goroutine of
// its own, for a statement on a row that is locked would hold up the outcomes.
type leaseReleaser struct {
	d       *Dispatcher
	db      DB
	store   Store
	expired logburst.Burst

	ctx    context.Context // of the statements; it ends when closing gives up
	cancel context.CancelFunc
	stop   chan struct{} // closed: try once more and end
	done   chan struct{}
	woken  chan struct{}

	held []*releasing // belongs to run

	mu     sync.Mutex
	fresh  []*releasing // not yet tried
	leases int          // in held and fresh
	closed bool
}

// releasing are leases that are given back together.
type releasing struct {
	leases []Lease
	claim  string        // the lease of a failed claim, while its rows are not known
	doubt  bool          // the rows may not be there yet: all of them, or none
	at     time.Time     // of the next try
	pause  time.Duration // after that
	until  time.Time     // the leases are over
	tries  int
	err    error // of the last try
}

func newLeaseReleaser(d *Dispatcher, db DB, store Store) *leaseReleaser {
	r := &leaseReleaser{
		d: d, db: db, store: store,
		stop: make(chan struct{}), done: make(chan struct{}), woken: make(chan struct{}, 1),
		expired: logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: leases could not be given back, other nodes deliver their events when the leases expire"},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *leaseReleaser) start() { go r.run() }

// release gives leases back, without waiting.
func (r *leaseReleaser) release(leases []Lease) {
	for part := range slices.Chunk(leases, releaseBatch) {
		r.take(&releasing{leases: part}, time.Now())
	}
}

// doubt gives back the leases of a transaction that may have been committed,
// without waiting.
func (r *leaseReleaser) doubt(leases []Lease, began time.Time) {
	if len(leases) > 0 {
		r.take(&releasing{leases: leases, doubt: true}, began)
	}
}

// doubtClaim gives back the lease of a claim that failed, without waiting. The server may
// have carried it out, or may do so later.
func (r *leaseReleaser) doubtClaim(lease string) {
	r.take(&releasing{claim: lease, doubt: true}, time.Now())
}

func (r *leaseReleaser) take(b *releasing, began time.Time) {
	b.at, b.pause, b.until = time.Now(), releasePause, began.Add(r.d.lockTimeout)
	r.mu.Lock()
	closed, full := r.closed, r.leases+len(b.leases) > releaseLimit
	if !closed && !full {
		r.leases += len(b.leases)
		r.fresh = append(r.fresh, b)
		wait.Signal(r.woken)
	}
	r.mu.Unlock()
	switch {
	case closed:
		go r.releaseLate(b)
	case full:
		r.expired.Add(len(b.leases), logKeyOwner, r.d.names.owner, logKeyError, "too many leases are given back at once")
	}
}

// releaseLate is for a transaction or a claim that ended after Close, when nothing runs
// any more that would do it.
func (r *leaseReleaser) releaseLate(b *releasing) {
	ctx, cancel := context.WithTimeout(context.Background(), lateTimeout)
	defer cancel()
	var err error
	if b.claim != "" {
		b.leases, err = r.store.Leased(ctx, r.db, []string{b.claim})
	}
	if err == nil && len(b.leases) > 0 {
		_, err = r.mark(ctx, b.leases)
	}
	if err != nil && len(b.leases) > 0 {
		r.expired.Add(len(b.leases), logKeyOwner, r.d.names.owner, logKeyError, err.Error())
		r.expired.Flush() // nothing else does it any more
	}
}

func (r *leaseReleaser) run() {
	defer close(r.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.woken:
		case <-r.stop:
			r.finish()
			return
		}
		r.takeFresh(false)
		if next := r.tryDue(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// finish tries what is left until it is given back or closing's time is over. What
// is in doubt has one more try.
func (r *leaseReleaser) finish() {
	r.takeFresh(true)
	for {
		for _, b := range r.held {
			b.at, b.pause = time.Time{}, releasePause
		}
		r.tryDue()
		if len(r.held) == 0 || r.ctx.Err() != nil {
			break
		}
		wait.Sleep(r.ctx, releaseRetry)
	}
}

func (r *leaseReleaser) takeFresh(last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, r.fresh...)
	r.fresh = nil
	r.closed = r.closed || last
}

// tryDue tries what is due and says when the next one is; zero: none is left.
// What never failed goes together, the rest one by one: a row that somebody
// locked fails all that are released with it.
func (r *leaseReleaser) tryDue() (next time.Time) {
	now := time.Now()
	r.findClaimed(now)
	var together []*releasing
	size := 0
	flush := func() {
		r.try(together)
		together, size = nil, 0
	}
	for _, b := range r.held {
		switch {
		case b.claim != "" || b.at.After(now):
		case b.tries > 0 || b.doubt:
			r.try([]*releasing{b})
		default:
			if size+len(b.leases) > releaseBatch {
				flush()
			}
			together, size = append(together, b), size+len(b.leases)
		}
	}
	flush()
	r.held = slices.DeleteFunc(r.held, func(b *releasing) bool {
		over := b.settled() || r.closed && b.doubt || !b.at.Before(b.until)
		if over {
			r.drop(b)
		} else if next.IsZero() || b.at.Before(next) {
			next = b.at
		}
		return over
	})
	return next
}

func (b *releasing) settled() bool { return b.tries < 0 }

// findClaimed looks for the rows of failed claims, as far as these are due. What it finds
// is then released.
func (r *leaseReleaser) findClaimed(now time.Time) {
	var names []string
	claims := map[string]*releasing{}
	for _, b := range r.held {
		if b.claim != "" && !b.at.After(now) {
			names, claims[b.claim] = append(names, b.claim), b
		}
	}
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, releaseTimeout)
	defer cancel()
	leases, err := r.store.Leased(ctx, r.db, names)
	for _, l := range leases {
		claims[l.Name].leases = append(claims[l.Name].leases, l)
	}
	for _, b := range claims {
		if b.err = err; len(b.leases) == 0 {
			b.later()
			continue
		}
		b.claim, b.doubt = "", false
		r.mu.Lock()
		r.leases += len(b.leases)
		r.mu.Unlock()
	}
}

// later plans the next try.
func (b *releasing) later() {
	b.tries++
	b.at = time.Now().Add(b.pause)
	if b.pause < time.Second {
		b.pause *= 10
	} else {
		b.pause *= 3
	}
}

// try releases in one statement what was given back at different times.
func (r *leaseReleaser) try(bs []*releasing) {
	if len(bs) == 0 {
		return
	}
	var leases []Lease
	for _, b := range bs {
		leases = append(leases, b.leases...)
	}
	ctx, cancel := context.WithTimeout(r.ctx, releaseTimeout)
	defer cancel()
	n, err := r.mark(ctx, leases)
	for _, b := range bs {
		if b.err = err; err == nil && (n > 0 || !b.doubt) {
			b.tries = -1
			continue
		}
		b.later()
	}
}

// mark releases leases, and wakes the pollers when rows became free.
func (r *leaseReleaser) mark(ctx context.Context, leases []Lease) (n int, err error) {
	marks := make([]Mark, len(leases))
	for i, l := range leases {
		marks[i] = Mark{EventID: l.EventID, Lease: l.Name}
	}
	left, err := r.store.Mark(ctx, r.db, OutcomeReleased, marks)
	if err != nil {
		return 0, err
	}
	if n = len(marks) - len(left); n > 0 {
		r.d.startOver()
		r.d.wakeOthers()
	}
	return n, nil
}

// drop forgets leases that are given back, or over.
func (r *leaseReleaser) drop(b *releasing) {
	r.mu.Lock()
	r.leases -= len(b.leases)
	r.mu.Unlock()
	if b.err != nil && len(b.leases) > 0 {
		r.expired.Add(len(b.leases), logKeyOwner, r.d.names.owner, logKeyError, b.err.Error())
	}
}

// close gives back what is left, for at most the given time, and returns how
// many leases it could not give back. It does not wait for a statement of a driver that
// ignores the end of its context.
func (r *leaseReleaser) close(limit time.Duration) (lost int) {
	close(r.stop)
	if !wait.For(context.Background(), r.done, limit) {
		r.cancel()
		wait.For(context.Background(), r.done, wait.Grace)
	}
	r.cancel()
	r.expired.Flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leases
}

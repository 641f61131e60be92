package leases

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const (
	releaseBatch   = 500                   // leases in one statement
	releasePause   = 10 * time.Millisecond // until the second try
	releaseRetry   = 50 * time.Millisecond // between tries while closing
	releaseTimeout = 2 * time.Second       // of a statement: a transaction or claim in doubt may have locked a row
	releaseLimit   = 100_000               // leases kept at once
	lateTimeout    = 5 * time.Second       // leases given back after closing
)

// Table is the table whose rows have leases. L identifies a lease. Two goroutines may call a Table
// at once when leases are given back after [Releaser.Close].
type Table[L any] interface {
	// Release gives leases back in a single statement, and returns how many rows had the lease that
	// was given back.
	Release(ctx context.Context, leases []L) (n int, err error)
	// Leased returns the leases of failed claims that rows have, by the name of the claim.
	Leased(ctx context.Context, claims []string) (map[string][]L, error)
}

// Releaser gives leases back: leases of rows on which no process works, of rows that may or may not
// have been committed, and of claims that failed. The rows of a failed claim are not known, so the
// Releaser asks for the rows under the name of the claim. The server may still be executing the
// COMMIT or the claim; then there is nothing to give back yet. A release without effect is tried
// again after 10 ms, 100 ms, 1 s, and then ever more rarely for as long as the lease lasts. A
// release that is repeated, or carried out late, changes nothing but its own lease.
//
// A Releaser has its own goroutine, because a statement on a locked row takes long. A Releaser is
// safe for concurrent use.
type Releaser[L any] struct {
	table   Table[L]
	owner   string
	lease   time.Duration
	expired logburst.Burst

	ctx    context.Context // of the statements; the context ends when closing gives up
	cancel context.CancelFunc
	stop   chan struct{} // closed: try once more and end
	done   chan struct{}
	woken  chan struct{}

	held []*releasing[L] // belongs to run

	mu     sync.Mutex
	fresh  []*releasing[L] // not yet tried
	leases int             // in held and fresh
	closed bool
}

// releasing are leases that are given back together.
type releasing[L any] struct {
	leases  []L
	claim   string        // the name of a failed claim, while the claim's rows are not known
	doubt   bool          // the rows may not be there yet: either all rows are, or no row is
	at      time.Time     // of the next try
	pause   time.Duration // after the next try
	until   time.Time     // the leases are over
	tries   int
	settled bool
	err     error // of the last try
}

// NewReleaser makes a releaser of an owner's leases, which last for the given time.
func NewReleaser[L any](owner string, lease time.Duration, table Table[L], log *slog.Logger) *Releaser[L] {
	r := &Releaser[L]{
		table: table, owner: owner, lease: lease,
		stop: make(chan struct{}), done: make(chan struct{}), woken: make(chan struct{}, 1),
		expired: logburst.Burst{Log: log, Level: slog.LevelWarn, Message: "outbox: leases could not be given back; other nodes deliver their events when the leases expire"},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Start begins to give leases back. Call it once.
func (r *Releaser[L]) Start() { go r.run() }

// Release gives leases back, without waiting.
func (r *Releaser[L]) Release(leases []L) {
	for part := range slices.Chunk(leases, releaseBatch) {
		r.take(&releasing[L]{leases: part}, time.Now())
	}
}

// Doubt gives back the leases of a transaction that may have been committed, without waiting.
// The leases began at the given time.
func (r *Releaser[L]) Doubt(leases []L, began time.Time) {
	if len(leases) > 0 {
		r.take(&releasing[L]{leases: leases, doubt: true}, began)
	}
}

// DoubtClaim gives back the leases of a claim that failed, without waiting. The server may
// have carried the claim out, or may do so later.
func (r *Releaser[L]) DoubtClaim(name string) {
	r.take(&releasing[L]{claim: name, doubt: true}, time.Now())
}

var errTooMany = errors.New("too many leases are given back at once")

func (r *Releaser[L]) take(b *releasing[L], began time.Time) {
	b.at, b.pause, b.until = time.Now(), releasePause, began.Add(r.lease)
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
		r.warn(len(b.leases), errTooMany)
	}
}

func (r *Releaser[L]) warn(n int, err error) {
	r.expired.Add(n, "owner", r.owner, "error", err.Error())
}

// releaseLate is for a transaction or a claim that ended after Close, when the goroutine has
// ended.
func (r *Releaser[L]) releaseLate(b *releasing[L]) {
	ctx, cancel := context.WithTimeout(context.Background(), lateTimeout)
	defer cancel()
	var err error
	if b.claim != "" {
		var found map[string][]L
		found, err = r.table.Leased(ctx, []string{b.claim})
		b.leases = found[b.claim]
	}
	if err == nil && len(b.leases) > 0 {
		_, err = r.table.Release(ctx, b.leases)
	}
	if err != nil && len(b.leases) > 0 {
		r.warn(len(b.leases), err)
		r.expired.Flush() // Close, which flushes other lines, has ended
	}
}

func (r *Releaser[L]) run() {
	defer close(r.done)
	timer := time.NewTimer(wait.Never)
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

// IsIdle reports whether no lease is to be given back. Claims that failed do not count while their
// rows are not known.
func (r *Releaser[L]) IsIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leases == 0
}

// finish tries the remaining leases until all are given back or the time for closing is over.
// Leases in doubt are tried once more.
func (r *Releaser[L]) finish() {
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

func (r *Releaser[L]) takeFresh(last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, r.fresh...)
	r.fresh = nil
	r.closed = r.closed || last
}

// tryDue tries all leases that are due and returns the time of the next try; zero: no lease is
// left. Leases that never failed go together, the rest one by one: a row that another transaction
// locked fails all leases of the statement.
func (r *Releaser[L]) tryDue() (next time.Time) {
	now := time.Now()
	r.findClaimed(now)
	var together []*releasing[L]
	size := 0
	flush := func() {
		r.try(together)
		together, size = nil, 0
	}
	for _, b := range r.held {
		switch {
		case b.claim != "" || b.at.After(now):
		case b.tries > 0 || b.doubt:
			r.try([]*releasing[L]{b})
		default:
			if size+len(b.leases) > releaseBatch {
				flush()
			}
			together, size = append(together, b), size+len(b.leases)
		}
	}
	flush()
	r.held = slices.DeleteFunc(r.held, func(b *releasing[L]) bool {
		over := b.settled || r.closed && b.doubt || !b.at.Before(b.until)
		if over {
			r.drop(b)
		} else if next.IsZero() || b.at.Before(next) {
			next = b.at
		}
		return over
	})
	return next
}

// findClaimed looks for the rows of failed claims that are due. The leases are then given back like
// other leases.
func (r *Releaser[L]) findClaimed(now time.Time) {
	claims := map[string]*releasing[L]{}
	var names []string
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
	found, err := r.table.Leased(ctx, names)
	for name, b := range claims {
		b.leases, b.err = found[name], err
		if len(b.leases) == 0 {
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
func (b *releasing[L]) later() {
	b.tries++
	b.at = time.Now().Add(b.pause)
	if b.pause < time.Second {
		b.pause *= 10
	} else {
		b.pause *= 3
	}
}

// try gives back leases that were handed over at different times, in a single statement.
func (r *Releaser[L]) try(bs []*releasing[L]) {
	if len(bs) == 0 {
		return
	}
	var leases []L
	for _, b := range bs {
		leases = append(leases, b.leases...)
	}
	ctx, cancel := context.WithTimeout(r.ctx, releaseTimeout)
	defer cancel()
	n, err := r.table.Release(ctx, leases)
	for _, b := range bs {
		b.err = err
		if b.settled = err == nil && (n > 0 || !b.doubt); !b.settled {
			b.later()
		}
	}
}

// drop forgets leases that are given back, or over.
func (r *Releaser[L]) drop(b *releasing[L]) {
	r.mu.Lock()
	r.leases -= len(b.leases)
	r.mu.Unlock()
	if b.err != nil && len(b.leases) > 0 {
		r.warn(len(b.leases), b.err)
	}
}

// Close gives the rest back, for at most the given time, and returns how many leases it could not
// give back. Close does not wait for a statement of a driver that ignores the end of a context.
// Leases that are handed over after Close are tried once.
func (r *Releaser[L]) Close(limit time.Duration) (lost int) {
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

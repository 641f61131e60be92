package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limits of doubts.
const (
	doubtPause   = 10 * time.Millisecond // until the second try
	doubtTimeout = 2 * time.Second       // one statement: the row may be locked by what is in doubt
	doubtEvents  = 10_000                // kept at once
	lateTimeout  = 5 * time.Second       // a lease given up after closing, while its caller waits
)

// doubts gives up the leases of events of which nobody knows whether they were
// committed. The server may still be at their COMMIT, so that there is no row
// to release yet: it is tried at once, after 10 ms, 100 ms, 1 s, and then ever
// more rarely for as long as the lease lasts. It has a goroutine of its own, for a statement on
// a row that is still locked would hold up the outcomes of others.
type doubts struct {
	d       *Dispatcher
	expired burst

	ctx    context.Context // of the statements; it ends when closing gives up
	cancel context.CancelFunc
	stop   chan struct{} // closed: try once more and end
	done   chan struct{}
	woken  chan struct{}

	held []*doubt // belongs to run

	mu     sync.Mutex
	fresh  []*doubt // not yet tried
	events int      // in held and fresh
	closed bool
}

// doubt is one WriteAll: its rows are there all or none, so that one of them
// found says that they all were.
type doubt struct {
	ids   []string
	at    time.Time     // of the next try
	pause time.Duration // after that
	until time.Time     // then the lease is over, and the row may be another's
	err   error         // of the last try
	tried bool          // a try failed, and may have been carried out all the same
}

func newDoubts(d *Dispatcher) *doubts {
	s := &doubts{d: d, stop: make(chan struct{}), done: make(chan struct{}), woken: make(chan struct{}, 1)}
	s.expired = burst{log: d.log, level: slog.LevelWarn, message: "outbox: leases of events whose commit is in doubt could not be given up, they have to expire"}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *doubts) start() { go s.run() }

// take takes events whose lease began at leased, without waiting; false after
// closing.
func (s *doubts) take(ids []string, leased time.Time) bool {
	s.mu.Lock()
	closed, full := s.closed, s.events+len(ids) > doubtEvents
	if !closed && !full {
		s.events += len(ids)
		s.fresh = append(s.fresh, &doubt{ids: ids, at: time.Now(), pause: doubtPause, until: leased.Add(s.d.claim.LockTimeout)})
		signal(s.woken)
	}
	s.mu.Unlock()
	if full && !closed {
		s.expired.add(len(ids), logKeyOwner, s.d.claim.Owner, logKeyError, "too many commits are in doubt at once")
	}
	return !closed
}

func (s *doubts) run() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.woken:
		case <-s.stop:
			s.finish()
			return
		}
		s.takeFresh(false)
		if next := s.tryDue(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

func (s *doubts) takeFresh(last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, s.fresh...)
	s.fresh = nil
	s.closed = s.closed || last
}

// tryDue tries what is due and says when the next one is; zero: none is left.
func (s *doubts) tryDue() (next time.Time) {
	left := s.held[:0]
	for _, b := range s.held {
		if !b.at.After(time.Now()) && (s.release(b) || !b.postpone()) {
			s.drop(b)
			continue
		}
		if next.IsZero() || b.at.Before(next) {
			next = b.at
		}
		left = append(left, b)
	}
	clear(s.held[len(left):])
	s.held = left
	return next
}

// postpone sets the time of the next try; false when the lease is over by then.
func (b *doubt) postpone() bool {
	b.at = time.Now().Add(b.pause)
	if b.pause < time.Second {
		b.pause *= 10
	} else {
		b.pause *= 3
	}
	return b.at.Before(b.until)
}

// drop forgets a doubt that is settled, or whose lease is over. Where no row was
// found to the end, there is none.
func (s *doubts) drop(b *doubt) {
	s.mu.Lock()
	s.events -= len(b.ids)
	s.mu.Unlock()
	if b.err != nil {
		s.expired.add(len(b.ids), logKeyOwner, s.d.claim.Owner, logKeyError, b.err.Error())
	}
}

// release tries to give up the leases; true when it took effect. What this node
// has in hand is left alone: it was claimed anew, or a caller tries the
// transaction again with the same ids.
func (s *doubts) release(b *doubt) bool {
	ctx, cancel := context.WithTimeout(s.ctx, doubtTimeout)
	defer cancel()
	if b.tried { // so it may have been claimed anew
		if s.d.beginClaim(ctx) != nil {
			return false
		}
		defer s.d.endClaim()
	}
	if s.d.track.holdsAny(b.ids) {
		return false
	}
	failed := b.err != nil
	n, err := s.d.complete.releaseNow(ctx, b.ids)
	b.err, b.tried = err, b.tried || err != nil
	if failed && err == nil && n == 0 {
		// The server may have run the failed statement to its end, as when it
		// waited for the row.
		s.d.wakePoller()
	}
	return n > 0
}

// finish tries all once more, as far as the closing's time allows.
func (s *doubts) finish() {
	s.takeFresh(true)
	for _, b := range s.held {
		if b.err = s.ctx.Err(); b.err == nil {
			s.release(b)
		}
		s.drop(b)
	}
	s.held = nil
}

func (s *doubts) close(limit time.Duration) {
	close(s.stop)
	if !waitFor(context.Background(), s.done, limit) {
		s.cancel()
		<-s.done
	}
	s.cancel()
	s.expired.flush()
}

// doubt gives up the leases of events of which nobody knows whether they were
// committed, so that any node takes those that were.
func (d *Dispatcher) doubt(envs []Envelope, owner string, leased time.Time) {
	ids := leasedIDs(envs, owner)
	if len(ids) > 0 && !d.doubts.take(ids, leased) {
		d.releaseLate(ids)
	}
}

// releaseLate gives up the leases of a transaction that ended after Close, when
// nothing runs any more that would do it.
func (d *Dispatcher) releaseLate(ids []string) {
	ctx, cancel := context.WithTimeout(context.Background(), lateTimeout)
	defer cancel()
	if _, err := d.complete.releaseNow(ctx, ids); err != nil {
		d.log.Warn("outbox: leases of a transaction that ended after closing could not be given up, they have to expire",
			logKeyOwner, d.claim.Owner, logKeyCount, len(ids), logKeyError, err.Error())
	}
}

// leasedIDs are the events that are leased to their writer: not the delayed.
func leasedIDs(envs []Envelope, owner string) []string {
	if owner == "" {
		return nil
	}
	ids := make([]string, 0, len(envs))
	for i := range envs {
		if !envs[i].IsDelayed() {
			ids = append(ids, envs[i].EventID)
		}
	}
	return ids
}

package soak

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"
)

// ledger knows the fate of each event, with two bits for an event. A ledger is safe for concurrent
// use.
type ledger struct {
	mu    sync.Mutex
	limit int // how many numbers there are; 0: no limit
	used  int // numbers that events have
	// written are the events whose transaction committed, delivered the events whose listener
	// succeeded.
	written, delivered set
	// dead are the events whose listener gave up, and has not succeeded since.
	dead   map[int]bool
	totals totals
}

// totals are numbers of events.
type totals struct {
	// written and delivered are the sizes of the sets.
	written, delivered int
	// repeated are successes of a listener after the first success for the same event.
	repeated, refused, dead int
}

// pending is how many events wait for a delivery, dead letters included.
func (t totals) pending() int { return max(t.written-t.delivered, 0) }

// set is a set of numbers, with a bit for each number.
type set []uint64

// add adds a number, and reports whether the number was missing.
func (s *set) add(number int) bool {
	at, bit := number/64, uint64(1)<<(number%64)
	if at >= len(*s) {
		*s = append(*s, make(set, at+1-len(*s))...)
	}
	missing := (*s)[at]&bit == 0
	(*s)[at] |= bit
	return missing
}

// has reports whether a number is in the set.
func (s set) has(number int) bool { return s.word(number/64)&(1<<(number%64)) != 0 }

// word has the bits of 64 numbers.
func (s set) word(at int) uint64 {
	if at >= len(s) {
		return 0
	}
	return s[at]
}

// newLedger is a ledger of at most limit events; 0 is no limit. With a limit, the ledger never takes
// more memory than at the beginning.
func newLedger(limit int) *ledger {
	words := limit/64 + 1
	return &ledger{limit: limit, written: make(set, 0, words), delivered: make(set, 0, words), dead: map[int]bool{}}
}

// take returns the numbers of n new events: the first number, and how many events there are. There
// are fewer than n near the limit.
func (l *ledger) take(n int) (first, got int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit > 0 {
		n = min(n, l.limit-l.used)
	}
	first = l.used
	l.used += n
	return first, n
}

// wrote notes how the transaction of n events ended.
func (l *ledger) wrote(first, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.totals.refused += n
		return
	}
	for number := first; number < first+n; number++ {
		l.written.add(number)
	}
	l.totals.written += n
}

// done notes that the listener of an event succeeded.
func (l *ledger) done(number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivered.add(number) {
		l.totals.delivered++
	} else {
		l.totals.repeated++
	}
	delete(l.dead, number)
}

// gaveUp notes that the listener of an event gives up. gaveUp is false if the listener gave up or
// succeeded before: the event is delivered after a replay.
func (l *ledger) gaveUp(number int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead[number] || l.delivered.has(number) {
		return false
	}
	l.dead[number] = true
	return true
}

// sum is the totals so far.
func (l *ledger) sum() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.totals.dead = len(l.dead)
	return l.totals
}

// settle waits until as many events are delivered as were written. settle fails if no event was
// delivered for as long as its patience.
func (l *ledger) settle(ctx context.Context, patience time.Duration) error {
	last, since := -1, time.Now()
	for {
		now := l.sum()
		if now.pending() == 0 {
			return nil
		}
		if now.delivered != last {
			last, since = now.delivered, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d of %d events are not delivered, and no event was delivered for %v", now.pending(), now.written, patience)
		}
		select {
		case <-time.After(min(patience, 50*time.Millisecond)):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events are not delivered: %w", now.pending(), now.written, context.Cause(ctx))
		}
	}
}

// problems are the events that were lost, repeated, or delivered although they were never written.
func (l *ledger) problems() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost, never int
	for at := range max(len(l.written), len(l.delivered)) {
		written, delivered := l.written.word(at), l.delivered.word(at)
		lost += bits.OnesCount64(written &^ delivered)
		never += bits.OnesCount64(delivered &^ written)
	}
	for _, p := range []struct {
		n    int
		what string
	}{
		{lost, "events were not delivered"},
		{l.totals.repeated, "deliveries came after a success of the same event"},
		{never, "events were delivered although their transaction failed"},
		{l.totals.refused, "events could not be written"},
	} {
		if p.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return all
}

package soak

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// ledger knows the fate of each event. A ledger is safe for concurrent use.
type ledger struct {
	mu                          sync.Mutex
	events                      []account
	written, delivered, refused int
}

// account is the account of an event.
type account struct {
	written   bool  // the transaction committed
	delivered uint8 // how often the listener succeeded
}

// next is the number of a new event.
func (l *ledger) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, account{})
	return len(l.events) - 1
}

// wrote notes how the transaction of an event ended.
func (l *ledger) wrote(number int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refused++
		return
	}
	l.written++
	l.events[number].written = true
}

// done notes that the listener of an event succeeded.
func (l *ledger) done(number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered++
	if l.events[number].delivered < 255 {
		l.events[number].delivered++
	}
}

// counts are how many events were written and delivered so far.
func (l *ledger) counts() (written, delivered int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written, l.delivered
}

// settle waits until as many events are delivered as were written.
func (l *ledger) settle(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		written, delivered := l.counts()
		if delivered >= written {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events are not delivered: %w", written-delivered, written, ctx.Err())
		}
	}
}

// problems are the events that were lost, repeated, or delivered although they were never written.
func (l *ledger) problems() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost, repeated, never int
	for _, e := range l.events {
		switch {
		case e.written && e.delivered == 0:
			lost++
		case e.delivered > 1:
			repeated++
		case !e.written && e.delivered > 0:
			never++
		}
	}
	for _, p := range []struct {
		n    int
		what string
	}{
		{lost, "were not delivered"},
		{repeated, "were delivered again after a success"},
		{never, "were delivered although their transaction failed"},
		{l.refused, "could not be written"},
	} {
		if p.n > 0 {
			all = append(all, fmt.Sprintf("%d events %s", p.n, p.what))
		}
	}
	return all
}

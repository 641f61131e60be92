package relaytest

import (
	"context"
	"sync"

	"github.com/outboxkit/outbox-go/relay"
)

// recorder is a publisher that knows which events it could not publish at once.
type recorder struct {
	relay.Publisher
	seen *seen
}

// seen counts the results of the nodes' publishers.
type seen struct {
	mu           sync.Mutex
	calls        int
	acknowledged int
	failed       map[string]int // by event id
	errors       map[string]int // by text
}

// Publish publishes and keeps the failures.
func (r recorder) Publish(ctx context.Context, messages []relay.Message) []error {
	r.seen.began()
	errs := r.Publisher.Publish(ctx, messages)
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	for i, m := range messages {
		if errs == nil || errs[i] == nil {
			r.seen.acknowledged++
			continue
		}
		r.seen.failed[m.ID]++
		if text := errs[i].Error(); len(r.seen.errors) < 20 || r.seen.errors[text] > 0 {
			r.seen.errors[text]++
		}
	}
	return errs
}

func (s *seen) acks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acknowledged
}

func (s *seen) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed)
}

func (s *seen) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

// published is how often a publisher was called.
func (s *seen) published() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

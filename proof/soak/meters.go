package soak

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// meters measure the nodes.
type meters struct {
	// claims are the times of the statements that claim or read due rows. hot and cold are the
	// times from when an event is due to the delivery, backlog those of events of the background
	// writer. drops are the times from the lock of the table to the end of the drop of a partition.
	claims, hot, cold, backlog, drops meter
}

// meter collects times. A meter is safe for concurrent use.
type meter struct {
	mu    sync.Mutex
	times []time.Duration
}

func (m *meter) add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, d)
}

// Spread is how a number of times are spread.
type Spread struct {
	Count            int
	Median, P99, Max time.Duration
	// Sum is the sum of all times.
	Sum time.Duration
}

// take is the spread of the times since the last call.
func (m *meter) take() Spread {
	m.mu.Lock()
	times := m.times
	m.times = nil
	m.mu.Unlock()
	if len(times) == 0 {
		return Spread{}
	}
	slices.Sort(times)
	s := Spread{Count: len(times), Median: times[len(times)/2], P99: times[len(times)*99/100], Max: times[len(times)-1]}
	for _, t := range times {
		s.Sum += t
	}
	return s
}

// timedStore measures claims, and the reads of nodes that read without a claim.
type timedStore struct {
	*sqlstore.Store
	claims *meter
}

func (s timedStore) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	began := time.Now()
	b, err := s.Store.Claim(ctx, db, q)
	s.claims.add(time.Since(began))
	return b, err
}

func (s timedStore) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	began := time.Now()
	b, err := s.Store.Poll(ctx, db, q)
	s.claims.add(time.Since(began))
	return b, err
}

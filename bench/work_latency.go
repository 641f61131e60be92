package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

func latencyWork() work {
	return work{
		name: "latency", title: "From the commit to the listener, idle", on: everywhere,
		note:    "One event at a time, up to 20 ms after the one before, in the same process: from the arrival of the answer to COMMIT at the driver to the call of the listener.",
		figures: []figure{{Name: "p50", Unit: "µs"}, {Name: "p99", Unit: "µs"}},
		variants: []variant{{measure: func(ctx context.Context, s *sample) ([]float64, error) {
			called := make(chan time.Time, 1)
			err := s.deliver(ctx, delivery{listen: func(n int) error {
				if at := time.Now(); s.heard.hear(n) {
					called <- at
				}
				return nil
			}})
			if err != nil {
				return nil, err
			}
			var late []time.Duration
			for n := range s.size(300) {
				time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))) // idle, for everybody
				if err := s.Write(ctx, n, 1); err != nil {
					return nil, err
				}
				committed := s.db.lastCommit()
				select {
				case at := <-called:
					late = append(late, at.Sub(committed))
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return []float64{quantile(late, 0.5, time.Microsecond), quantile(late, 0.99, time.Microsecond)}, nil
		}}},
	}
}

func remoteWork() work {
	return work{
		name: "remote", title: "An event that another node delivers", on: everywhere,
		note:    "From the return of the commit to the call of the listener of another node, which is idle and has connections of its own: 20 events at random times within 5 s.",
		figures: []figure{{Name: "p50", Unit: "ms"}, {Name: "most", Unit: "ms"}},
		variants: []variant{{measure: func(ctx context.Context, s *sample) ([]float64, error) {
			times := newTimes()
			err := s.deliver(ctx, delivery{apart: true, listen: func(n int) error { times.end(n); return s.heard.listen(n) }})
			if err != nil {
				return nil, err
			}
			events := s.size(20)
			for n := range events {
				time.Sleep(time.Duration(rand.Int64N(int64(500 * time.Millisecond))))
				if err := s.Write(ctx, n, 1); err != nil {
					return nil, err
				}
				times.begin(n, time.Now())
			}
			if err := s.heard.wait(ctx, events); err != nil {
				return nil, err
			}
			late := times.all()
			return []float64{quantile(late, 0.5, time.Millisecond), quantile(late, 1, time.Millisecond)}, nil
		}}},
	}
}

// times knows when each event should have been delivered, and when it was.
type times struct {
	mu           sync.Mutex
	began, ended map[int]time.Time
}

func newTimes() *times { return &times{began: map[int]time.Time{}, ended: map[int]time.Time{}} }

func (t *times) begin(n int, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began[n] = at
}

func (t *times) end(n int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, again := t.ended[n]; !again {
		t.ended[n] = now
	}
}

// all is how late each event was.
func (t *times) all() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var late []time.Duration
	for n, began := range t.began {
		late = append(late, max(t.ended[n].Sub(began), 0))
	}
	return late
}

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// works are all works, in the order of the document.
func works() []work {
	return []work{
		writeWork(), manyWork(), doneWork(), drainWork(), latencyWork(), remoteWork(),
		burstWork(), flatWork(), precisionWork(), memoryWork(), costWork(),
	}
}

// work is a kind of work, a table in the document. The table has a column for each variant and
// figure.
type work struct {
	name    string // for -run
	title   string
	note    string // the description of the measurement
	figures []figure
	on      []testdb.Kind
	// rounds is the most rounds; zero: as many as requested.
	rounds int
	// ratioToFirst compares a contender with itself in the first variant, not with
	// the limit. In each round the variants of a contender then follow one another.
	ratioToFirst bool
	variants     []variant
}

type figure struct {
	Name string `json:"name"` // empty when there is a single figure
	Unit string `json:"unit"`
	// Higher is better.
	Higher bool `json:"higher"`
}

// variant is a way to do the work. Measure gets a new system and returns a value for each figure.
type variant struct {
	name string
	on   []testdb.Kind // nil: the work's
	// full leaves the variant out of -quick.
	full    bool
	measure func(ctx context.Context, s *sample) ([]float64, error)
}

func (w work) supports(v variant, kind testdb.Kind) bool {
	return slices.Contains(w.on, kind) && (v.on == nil || slices.Contains(v.on, kind))
}

// sample is a measurement: a contender, a variant, a round.
type sample struct {
	system
	db    *database
	scale float64       // of every size
	slice time.Duration // how long a work without an end runs
	heard *arrivals
	next  atomic.Int64 // the number of the next event; all events before are written
	stops []func() error
}

// size is how many events or rows a work takes.
func (s *sample) size(n int) int { return max(int(float64(n)*s.scale), min(n, 1)) }

// deliver starts a delivery, which ends by stop.
func (s *sample) deliver(ctx context.Context, d delivery) error {
	if d.listen == nil {
		d.listen = s.heard.listen
	}
	stop, err := s.Deliver(ctx, d)
	if err == nil {
		s.stops = append(s.stops, stop)
	}
	return err
}

// settle returns when every event has arrived and every outcome is stored.
func (s *sample) settle(ctx context.Context) error {
	return firstError(s.heard.wait(ctx, int(s.next.Load())), waitStored(ctx, s))
}

// stop ends the deliveries.
func (s *sample) stop() error {
	var errs []error
	for _, stop := range s.stops {
		errs = append(errs, stop())
	}
	s.stops = nil
	return errors.Join(errs...)
}

// writeFor lets writers write for a time, with a number of events in each transaction, and returns
// how many events a second they wrote.
func (s *sample) writeFor(ctx context.Context, d time.Duration, writers, events int) (float64, error) {
	before, began := s.next.Load(), time.Now()
	err := together(writers, func() error {
		for time.Since(began) < d {
			end := int(s.next.Add(int64(events)))
			if err := s.Write(ctx, end-events, events); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(s.next.Load()-before) / time.Since(began).Seconds(), err
}

// writeUntilStored lets writers write for a time, an event in each transaction, while the events
// are delivered. The rate counts the events until the last outcome is stored.
func (s *sample) writeUntilStored(ctx context.Context, d time.Duration, writers int) (float64, error) {
	before, began := s.next.Load(), time.Now()
	if _, err := s.writeFor(ctx, d, writers, 1); err != nil {
		return 0, err
	}
	if err := s.settle(ctx); err != nil {
		return 0, err
	}
	return float64(s.next.Load()-before) / time.Since(began).Seconds(), nil
}

// fill writes events in transactions of 1,000.
func (s *sample) fill(ctx context.Context, events, writers int) error {
	if s.db.kind == testdb.SQLite {
		writers = 1 // SQLite has a single writer at a time
	}
	var next atomic.Int64
	err := together(writers, func() error {
		for {
			first := int(next.Add(1000) - 1000)
			if first >= events {
				return nil
			}
			if err := s.Write(ctx, first, min(1000, events-first)); err != nil {
				return err
			}
		}
	})
	s.next.Store(int64(events))
	return err
}

// drain returns how many of the events that are in the table are delivered in a
// second, until the last outcome is stored.
func (s *sample) drain(ctx context.Context, nodes int) (float64, error) {
	began := time.Now()
	for range nodes {
		if err := s.deliver(ctx, delivery{apart: nodes > 1}); err != nil {
			return 0, err
		}
	}
	if err := s.settle(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return float64(s.next.Load()) / took.Seconds(), s.stop()
}

// together runs fn in n goroutines.
func together(n int, fn func() error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn() })
	}
	wg.Wait()
	return firstError(errs...)
}

var (
	perSecond    = []figure{{Unit: "events/s", Higher: true}}
	postgresOnly = []testdb.Kind{testdb.Postgres}
	servers      = []testdb.Kind{testdb.Postgres, testdb.MySQL}
)

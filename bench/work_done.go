package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

func doneWork() work {
	return work{
		name: "done", title: "From the write to DONE", on: everywhere, figures: perSecond,
		note: "16 writers write one event in each transaction and listeners run in the same process. The time ends when the last outcome is stored. Everyone's number of listeners at once is their setting: 16 here, River's in peers.go, one in watermill.",
		variants: []variant{
			{name: "listener returns at once", measure: toDone(0)},
			{name: "listener takes 1 ms", on: servers, measure: toDone(time.Millisecond)},
		},
	}
}

func toDone(takes time.Duration) func(context.Context, *sample) ([]float64, error) {
	return func(ctx context.Context, s *sample) ([]float64, error) {
		heard := newArrivals()
		stop, err := s.deliver(ctx, delivery{listen: func(n int) error {
			if takes > 0 {
				time.Sleep(takes)
			}
			return heard.listen(n)
		}})
		if err != nil {
			return nil, err
		}
		var next atomic.Int64
		began := time.Now()
		if _, _, err := writeFor(ctx, s.slice, 16, 1, s, &next); err != nil {
			return nil, err
		}
		events := int(next.Load())
		if err := firstError(heard.wait(ctx, events), waitStored(ctx, s)); err != nil {
			return nil, err
		}
		took := time.Since(began)
		return []float64{float64(events) / took.Seconds()}, stop()
	}
}

func burstWork() work {
	return work{
		name: "burst", title: "A burst of 20,000 events", on: everywhere, figures: perSecond,
		note: "4 writers write 20 transactions of 1,000 events while the outbox is idle. The time runs from the first write until the last outcome is stored. The hot queue holds 1,000.",
		variants: []variant{{name: "20,000 events", measure: func(ctx context.Context, s *sample) ([]float64, error) {
			heard := newArrivals()
			stop, err := s.deliver(ctx, delivery{listen: heard.listen})
			if err != nil {
				return nil, err
			}
			events := s.size(20_000)
			began := time.Now()
			if err := fill(ctx, s, events, 4); err != nil {
				return nil, err
			}
			if err := firstError(heard.wait(ctx, events), waitStored(ctx, s)); err != nil {
				return nil, err
			}
			took := time.Since(began)
			return []float64{float64(events) / took.Seconds()}, stop()
		}}},
	}
}

// fill writes events in transactions of 1,000.
func fill(ctx context.Context, s *sample, events, writers int) error {
	var next atomic.Int64
	if s.db.kind == testdb.SQLite {
		writers = 1 // SQLite has one at a time
	}
	return together(writers, func() error {
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
}

package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

func flatWork() work {
	rows := func(kind string, n int) func(context.Context, *sample) ([]float64, error) {
		return func(ctx context.Context, s *sample) ([]float64, error) {
			if n > 0 {
				if err := s.system.(prefiller).Prefill(ctx, kind, s.size(n)); err != nil {
					return nil, err
				}
			}
			return besideRows(ctx, s, s.size(n))
		}
	}
	return work{
		name: "flat", title: "Beside many rows", on: postgresOnly, ratioToFirst: true,
		note: "The same work on an empty table and beside rows that are not due. Drain: 50,000 events. Write: 4 writers, until the last outcome is stored.",
		figures: []figure{
			{Name: "drain", Unit: "events/s", Higher: true},
			{Name: "write", Unit: "events/s", Higher: true},
		},
		variants: []variant{
			{name: "empty", measure: rows("", 0)},
			{name: "1M DONE", full: true, measure: rows("done", 1_000_000)},
			{name: "100k DEAD", full: true, measure: rows("dead", 100_000)},
			{name: "500k future", measure: rows("future", 500_000)},
		},
	}
}

func besideRows(ctx context.Context, s *sample, rows int) ([]float64, error) {
	// The rows that are there are numbered from 0, as are those of fill.
	shifted := &sample{system: shiftedSystem{s.system.(deliverer), rows}, db: s.db, scale: s.scale, slice: s.slice}
	events := s.size(50_000)
	if err := firstError(fill(ctx, shifted, events, 2), s.db.analyzeAll(ctx)); err != nil {
		return nil, err
	}
	drained, err := shifted.drain(ctx, events, 1)
	if err != nil {
		return nil, err
	}
	heard := newArrivals()
	stop, err := shifted.deliver(ctx, delivery{listen: heard.listen})
	if err != nil {
		return nil, err
	}
	next := new(atomic.Int64)
	next.Store(int64(events))
	began := time.Now()
	if _, _, err := writeFor(ctx, s.slice, 4, 1, shifted, next); err != nil {
		return nil, err
	}
	written := int(next.Load()) - events
	if err := firstError(heard.wait(ctx, written), waitStored(ctx, shifted)); err != nil {
		return nil, err
	}
	took := time.Since(began)
	return []float64{drained, float64(written) / took.Seconds()}, stop()
}

// shiftedSystem numbers events behind those that were there before.
type shiftedSystem struct {
	deliverer
	by int
}

func (s shiftedSystem) Write(ctx context.Context, first, n int) error {
	return s.deliverer.Write(ctx, first+s.by, n)
}

func memoryWork() work {
	return work{
		name: "memory", title: "Memory, draining a million", on: postgresOnly, rounds: 1,
		note: "What the live and not yet collected objects take at most, beyond what they took before the start, and what is allocated for each event.",
		figures: []figure{
			{Name: "heap at most", Unit: "MiB"},
			{Name: "allocations", Unit: "per event"},
			{Name: "allocated", Unit: "bytes per event"},
		},
		variants: []variant{{measure: func(ctx context.Context, s *sample) ([]float64, error) {
			events := s.size(1_000_000)
			if err := s.system.(prefiller).Prefill(ctx, "new", events); err != nil {
				return nil, err
			}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			base, most := heapObjects(), uint64(0)
			watching, ended := context.WithCancel(ctx)
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				for watching.Err() == nil {
					most = max(most, heapObjects())
					time.Sleep(10 * time.Millisecond)
				}
			}()
			_, err := s.drain(ctx, events, 1)
			ended()
			<-watched
			runtime.ReadMemStats(&after)
			n := float64(events)
			return []float64{
				float64(most-min(base, most)) / (1 << 20),
				float64(after.Mallocs-before.Mallocs) / n,
				float64(after.TotalAlloc-before.TotalAlloc) / n,
			}, err
		}}},
	}
}

func heapObjects() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"time"
)

func flatWork() work {
	beside := func(state rowState, n int) func(context.Context, *sample) ([]float64, error) {
		return func(ctx context.Context, s *sample) ([]float64, error) {
			// The rows are numbered behind every event.
			if err := s.db.prefill(ctx, state, maxEvents, s.size(n)); err != nil {
				return nil, err
			}
			return drainAndWrite(ctx, s)
		}
	}
	return work{
		name: "flat", title: "Beside many rows", on: everywhere, ratioToFirst: true,
		note: "The same work on an empty table and beside rows that are not due. The ratio is to the empty table. Drain: 50,000 events. Write: 4 writers, until the last outcome is stored.",
		figures: []figure{
			{Name: "drain", Unit: "events/s", Higher: true},
			{Name: "write", Unit: "events/s", Higher: true},
		},
		variants: []variant{
			{name: "empty", measure: drainAndWrite},
			{name: "1M DONE", full: true, measure: beside(doneRows, 1_000_000)},
			{name: "100k DEAD", full: true, measure: beside(deadRows, 100_000)},
			{name: "500k future", measure: beside(futureRows, 500_000)},
		},
	}
}

func drainAndWrite(ctx context.Context, s *sample) ([]float64, error) {
	if err := firstError(s.fill(ctx, s.size(50_000), 2), s.db.analyzeAll(ctx)); err != nil {
		return nil, err
	}
	drained, err := s.drain(ctx, 1)
	if err != nil {
		return nil, err
	}
	if err := s.deliver(ctx, delivery{}); err != nil {
		return nil, err
	}
	written, err := s.writeUntilStored(ctx, s.slice, 4)
	return []float64{drained, written}, err
}

func memoryWork() work {
	return work{
		name: "memory", title: "Memory, draining a backlog", on: everywhere, rounds: 1,
		note: "The most memory of the live and not yet collected objects, beyond the memory before the start, and the allocations of each event.",
		figures: []figure{
			{Name: "heap at most", Unit: "MiB"},
			{Name: "allocations", Unit: "per event"},
			{Name: "allocated", Unit: "bytes per event"},
		},
		variants: []variant{
			{name: "100k", full: true, measure: drainingWatched(100_000)},
			{name: "1M", measure: drainingWatched(1_000_000)},
		},
	}
}

// drainingWatched drains a backlog and watches the heap.
func drainingWatched(backlog int) func(context.Context, *sample) ([]float64, error) {
	return func(ctx context.Context, s *sample) ([]float64, error) {
		events := s.size(backlog)
		if err := s.db.prefill(ctx, newRows, 0, events); err != nil {
			return nil, err
		}
		s.next.Store(int64(events))
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		most := watchHeap()
		_, err := s.drain(ctx, 1)
		heap := most()
		runtime.ReadMemStats(&after)
		n := float64(events)
		return []float64{
			heap / (1 << 20),
			float64(after.Mallocs-before.Mallocs) / n,
			float64(after.TotalAlloc-before.TotalAlloc) / n,
		}, err
	}
}

// watchHeap reads the bytes of the heap's objects every 10 ms. most ends the reading and returns
// the most bytes, beyond the bytes at the start.
func watchHeap() (most func() float64) {
	objects := func() float64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return float64(s[0].Value.Uint64())
	}
	base := objects()
	seen, end, ended := base, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				seen = max(seen, objects())
			case <-end:
				return
			}
		}
	}()
	return func() float64 {
		close(end)
		<-ended
		return seen - base
	}
}

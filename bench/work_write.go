package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

func writeWork() work {
	w := work{
		name: "write", title: "One event in a transaction", on: everywhere,
		note:    "Transactions a second, with one row in a business table and one event. Delivering: listeners run meanwhile, in the same process.",
		figures: []figure{{Unit: "transactions/s", Higher: true}},
	}
	for _, writers := range []int{1, 4, 16} {
		var on []testdb.Kind
		if writers == 4 {
			on = postgresOnly
		}
		w.variants = append(w.variants,
			variant{name: plural(writers, "writer"), on: on, full: writers > 1, measure: writing(writers, 1, false)},
			variant{name: plural(writers, "writer") + ", delivering", on: on, full: writers < 16, measure: writing(writers, 1, true)})
	}
	return w
}

func manyWork() work {
	return work{
		name: "many", title: "100 events in a transaction", on: everywhere, figures: perSecond,
		note: "Events a second, 100 in each transaction beside one row in a business table. The limit is unnest on PostgreSQL, and VALUES with many rows elsewhere.",
		variants: []variant{
			{name: "1 writer", measure: writing(1, 100, false)},
			{name: "4 writers", on: servers, measure: writing(4, 100, false)},
		},
	}
}

// writing counts the events, or transactions, that are written in a slice.
func writing(writers, events int, delivering bool) func(context.Context, *sample) ([]float64, error) {
	return func(ctx context.Context, s *sample) ([]float64, error) {
		heard := newArrivals()
		stop := func() error { return nil }
		d, can := s.system.(deliverer)
		delivering := delivering && can
		if delivering {
			var err error
			if stop, err = d.Deliver(ctx, delivery{listen: heard.listen}); err != nil {
				return nil, err
			}
		}
		var next atomic.Int64
		_, _, err := writeFor(ctx, s.slice/10, writers, events, s, &next) // warm up
		if err != nil {
			return nil, err
		}
		written, took, err := writeFor(ctx, s.slice, writers, events, s, &next)
		if err != nil {
			return nil, err
		}
		pending := int(next.Load())
		if delivering {
			err = firstError(heard.wait(ctx, pending), waitStored(ctx, s), stop())
			pending = 0
		}
		if err == nil {
			err = expectPending(ctx, s, pending)
		}
		return []float64{float64(written) / took.Seconds()}, err
	}
}

// writeFor lets writers write for so long and returns how many events they wrote.
func writeFor(ctx context.Context, d time.Duration, writers, events int, s system, next *atomic.Int64) (int, time.Duration, error) {
	var written atomic.Int64
	began := time.Now()
	err := together(writers, func() error {
		for time.Since(began) < d {
			first := next.Add(int64(events)) - int64(events)
			if err := s.Write(ctx, int(first), events); err != nil {
				return err
			}
			written.Add(int64(events))
		}
		return nil
	})
	return int(written.Load()), time.Since(began), err
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

// expectPending checks that no event is missing from the table.
func expectPending(ctx context.Context, s system, want int) error {
	n, err := s.Pending(ctx)
	if err == nil && n != want {
		err = fmt.Errorf("%d events are pending, not %d", n, want)
	}
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

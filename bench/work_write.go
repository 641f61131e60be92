package main

import (
	"context"
	"fmt"
)

func writeWork() work {
	w := work{
		name: "write", title: "One event in a transaction", on: everywhere,
		note:    "Transactions a second, with one row in a business table and one event. Delivering: listeners run meanwhile, in the same process.",
		figures: []figure{{Unit: "transactions/s", Higher: true}},
	}
	for _, writers := range []int{1, 4, 16} {
		w.variants = append(w.variants,
			variant{name: plural(writers, "writer"), full: writers > 1, measure: writing(writers, 1, false)},
			variant{name: plural(writers, "writer") + ", delivering", full: writers < 16, measure: writing(writers, 1, true)})
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
		if delivering {
			if err := s.deliver(ctx, delivery{}); err != nil {
				return nil, err
			}
		}
		if _, err := s.writeFor(ctx, s.slice/10, writers, events); err != nil { // warm up
			return nil, err
		}
		rate, err := s.writeFor(ctx, s.slice, writers, events)
		if err != nil {
			return nil, err
		}
		if delivering {
			return []float64{rate}, firstError(s.settle(ctx), s.stop(), expectPending(ctx, s, 0))
		}
		return []float64{rate}, expectPending(ctx, s, int(s.next.Load()))
	}
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

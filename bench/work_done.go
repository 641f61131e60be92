package main

import (
	"context"
	"time"
)

func doneWork() work {
	return work{
		name: "done", title: "From the write to DONE", on: everywhere, figures: perSecond, ratioToFirst: true,
		note: "16 writers write one event in each transaction and listeners run in the same process. The time ends when the last outcome is stored. " +
			"The ratio is to the same contender without a listener: write only. " +
			"Listeners at once: 16 in outbox, 1 in watermill-sql, River's as in peers.go.",
		variants: []variant{
			{name: "write only", measure: writing(16, 1, false)},
			{name: "listener returns at once", measure: toDone(0)},
			{name: "listener takes 1 ms", on: servers, measure: toDone(time.Millisecond)},
		},
	}
}

func toDone(takes time.Duration) func(context.Context, *sample) ([]float64, error) {
	return func(ctx context.Context, s *sample) ([]float64, error) {
		err := s.deliver(ctx, delivery{listen: func(n int) error {
			if takes > 0 {
				time.Sleep(takes)
			}
			return s.heard.listen(n)
		}})
		if err != nil {
			return nil, err
		}
		if _, err := s.writeUntilStored(ctx, s.slice/10, 16); err != nil { // warm up
			return nil, err
		}
		rate, err := s.writeUntilStored(ctx, s.slice, 16)
		return []float64{rate}, err
	}
}

func burstWork() work {
	return work{
		name: "burst", title: "A burst of 20,000 events", on: everywhere, figures: perSecond,
		note: "4 writers write 20 transactions of 1,000 events while the outbox is idle. The time runs from the first write until the last outcome is stored. The hot queue holds 1,000.",
		variants: []variant{{name: "20,000 events", measure: func(ctx context.Context, s *sample) ([]float64, error) {
			if err := s.deliver(ctx, delivery{}); err != nil {
				return nil, err
			}
			events := s.size(20_000)
			began := time.Now()
			if err := s.fill(ctx, events, 4); err != nil {
				return nil, err
			}
			if err := s.settle(ctx); err != nil {
				return nil, err
			}
			return []float64{float64(events) / time.Since(began).Seconds()}, nil
		}}},
	}
}

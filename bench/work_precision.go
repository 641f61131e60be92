package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

func precisionWork() work {
	return work{
		name: "precision", title: "Retries and delays", on: everywhere,
		note:    "How late 1,000 events are delivered that become due within one second: events with a delay, and events that failed and wait a second.",
		figures: []figure{{Name: "p50", Unit: "ms"}, {Name: "p99", Unit: "ms"}},
		variants: []variant{
			{name: "delayed", measure: lateness(false)},
			{name: "retried", measure: lateness(true)},
		},
	}
}

var errFirst = errors.New("the first delivery fails")

// lateness measures deliveries against the time when they are due.
func lateness(retried bool) func(context.Context, *sample) ([]float64, error) {
	return func(ctx context.Context, s *sample) ([]float64, error) {
		events := s.size(1_000)
		times := newTimes()
		var failed sync.Map
		listen := func(n int) error {
			if retried {
				if _, again := failed.LoadOrStore(n, true); !again {
					times.begin(n, time.Now().Add(retryDelay))
					return errFirst
				}
			}
			times.end(n)
			return s.heard.listen(n)
		}
		if err := s.deliver(ctx, delivery{listen: listen}); err != nil {
			return nil, err
		}
		base := time.Now().Add(time.Second)
		due := make([]time.Time, events)
		for i := range due {
			due[i] = base.Add(time.Second * time.Duration(i) / time.Duration(events))
			if !retried {
				times.begin(i, due[i])
			}
		}
		if err := s.system.(delayer).WriteDue(ctx, 0, due); err != nil {
			return nil, err
		}
		if err := s.heard.wait(ctx, events); err != nil {
			return nil, err
		}
		late := times.all()
		return []float64{quantile(late, 0.5, time.Millisecond), quantile(late, 0.99, time.Millisecond)}, nil
	}
}

package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/outbox"
)

// simulateHeader tells the listener which failure to show.
const simulateHeader = "simulate"

// The failures of a listener that can be simulated.
const (
	simulateListenerError = "listener-error"
	simulateListenerDead  = "listener-dead"
)

// warehouse is the listener: it gets every order that was committed, at least
// once. What it does here is to add a line to a file; what it does elsewhere is
// to be idempotent by the event's id.
type warehouse struct {
	tracer     trace.Tracer
	deliveries *deliveries
	times      *commitTimes
	mended     sync.Map // ids of events that were refused once
}

func newWarehouse(deliveries *deliveries, traces trace.TracerProvider) *warehouse {
	return &warehouse{
		tracer:     traces.Tracer("github.com/outboxkit/outbox-go/samples/echo-fx-demo"),
		deliveries: deliveries, times: deliveries.times,
	}
}

// OnEvent implements [outbox.Listener]. The context has the delivery's span, so
// what is begun with it becomes a part of the request's trace.
func (w *warehouse) OnEvent(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
	var order OrderPlacedV1
	if err := env.Payload.Decode(&order); err != nil {
		return outbox.Result{}, outbox.Unrecoverable(err)
	}
	_, span := w.tracer.Start(ctx, "ship order", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	res, err := w.ship(env, order)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return res, err
}

// ship tells the world outside of the order.
func (w *warehouse) ship(env outbox.Envelope, order OrderPlacedV1) (outbox.Result, error) {
	switch env.Headers[simulateHeader] {
	case simulateListenerError: // fails twice, then the world is well again
		if env.Attempts < 2 {
			return outbox.Result{}, errors.New("the warehouse does not answer (simulated)")
		}
	case simulateListenerDead: // refused, until somebody replays it
		if _, again := w.mended.LoadOrStore(env.EventID, true); !again {
			return outbox.Dead("the warehouse does not know the item (simulated)"), nil
		}
	}
	now := time.Now()
	return outbox.Done(), w.deliveries.add(Delivery{
		EventID: env.EventID, OrderID: order.OrderID, Customer: order.Customer, Item: order.Item, Quantity: order.Quantity,
		Attempt: env.Attempts + 1, At: now, LatencyMS: float64(w.times.since(env, now).Microseconds()) / 1000,
	})
}

// commitTimes remembers when events committed, for the latency that the demo
// shows. Of those that this process never delivers it forgets some.
type commitTimes struct {
	began time.Time
	mu    sync.Mutex
	at    map[string]time.Time // zero: delivered before the hook below had run
}

func newTimes() *commitTimes { return &commitTimes{began: time.Now(), at: make(map[string]time.Time)} }

// newCommitTimes is the hook that fills them.
func newCommitTimes(deliveries *deliveries) outbox.WriterHook {
	times := deliveries.times
	return outbox.WriterHook{
		AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
			now := time.Now()
			times.mu.Lock()
			defer times.mu.Unlock()
			for i := range envs {
				if _, delivered := times.at[envs[i].EventID]; delivered {
					delete(times.at, envs[i].EventID)
				} else {
					times.keep(envs[i].EventID, now)
				}
			}
		},
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, cause error) {
			slog.Info("rolled back, no event leaves", "events", len(envs), "cause", cause)
		},
	}
}

// since is how long ago the event committed; one of an earlier run of the
// service, how long ago it was written.
func (t *commitTimes) since(env outbox.Envelope, now time.Time) time.Duration {
	if env.OccurredAt.Before(t.began) {
		return now.Sub(env.OccurredAt)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, known := t.at[env.EventID]
	if !known {
		t.keep(env.EventID, time.Time{})
		return 0
	}
	delete(t.at, env.EventID)
	return now.Sub(at)
}

func (t *commitTimes) keep(eventID string, at time.Time) {
	for forgotten := range t.at {
		if len(t.at) < keptDeliveries {
			break
		}
		delete(t.at, forgotten)
	}
	t.at[eventID] = at
}

package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/outbox"
)

// warehouse is the listener. It gets every committed order at least once. Here the listener appends
// a line to a file; a real listener would be idempotent by the event's id.
type warehouse struct {
	tracer     trace.Tracer
	deliveries *deliveries
}

func newWarehouse(deliveries *deliveries, traces trace.TracerProvider) *warehouse {
	return &warehouse{traces.Tracer("github.com/outboxkit/outbox-go/samples/echo-fx-demo"), deliveries}
}

// OnEvent implements [outbox.Listener]. The context carries the span of the
// delivery, so that spans begun with it belong to the request's trace.
func (w *warehouse) OnEvent(ctx context.Context, env outbox.Envelope) error {
	var order OrderPlacedV1
	if err := env.Payload.Decode(&order); err != nil {
		return outbox.Dead(err)
	}
	_, span := w.tracer.Start(ctx, "ship order", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	now := time.Now()
	return w.deliveries.add(Delivery{
		EventID: env.EventID, OrderID: order.OrderID, Customer: order.Customer, Item: order.Item, Quantity: order.Quantity,
		Attempt: env.Attempts + 1, At: now, LatencyMS: float64(now.Sub(env.OccurredAt).Microseconds()) / 1000,
	})
}

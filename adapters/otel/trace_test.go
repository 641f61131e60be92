package outboxotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

const deliverPlaced = "deliver order/order.placed"

func TestDeliveryIsLinkedToTheSpanThatWroteTheEvent(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	seen := make(chan trace.SpanContext, 1)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans)), on(func(ctx context.Context, _ outbox.Envelope) error {
		seen <- trace.SpanContextFromContext(ctx)
		return nil
	}))

	ctx, request := spans.start(t.Context(), "POST /orders")
	id := a.write(ctx, t, event())[0]
	request.End()

	span := spans.wait(t, deliverPlaced, 1)[0]
	require.Equal(t, trace.SpanKindConsumer, span.SpanKind)
	require.False(t, span.Parent.IsValid(), "a trace of its own")
	require.NotEqual(t, request.SpanContext().TraceID(), span.SpanContext.TraceID())
	require.Len(t, span.Links, 1)
	require.Equal(t, request.SpanContext().TraceID(), span.Links[0].SpanContext.TraceID())
	require.Equal(t, request.SpanContext().SpanID(), span.Links[0].SpanContext.SpanID())
	require.Equal(t, span.SpanContext, <-seen, "the listener runs in the span")
	require.Equal(t, codes.Unset, span.Status.Code)
	require.Empty(t, span.Events)
	require.Equal(t, map[string]any{
		"messaging.system": "outbox", "messaging.operation.type": "process", "messaging.operation.name": "deliver",
		"messaging.destination.name": "order/order.placed", "messaging.message.id": id,
		"outbox.aggregate.type": "order", "outbox.aggregate.id": "o-1", "outbox.event.type": "order.placed",
	}, attributes(span))
}

func TestDeliveryIsAChildWhenAskedFor(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans), outboxotel.WithChildOf()), on(succeed))

	ctx, request := spans.start(t.Context(), "POST /orders")
	a.write(ctx, t, event())
	request.End()

	span := spans.wait(t, deliverPlaced, 1)[0]
	require.Equal(t, request.SpanContext().TraceID(), span.SpanContext.TraceID())
	require.Equal(t, request.SpanContext().SpanID(), span.Parent.SpanID())
	require.True(t, span.Parent.IsRemote())
	require.Empty(t, span.Links)
}

func TestBaggageReachesTheListener(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]outboxotel.Option{"linked": nil, "child": {outboxotel.WithChildOf()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := newRecording(t)
			got := make(chan string, 1)
			opts := append(opts, outboxotel.WithTracerProvider(spans))
			a := run(t, openDB(t).DB, traced(opts...), on(func(ctx context.Context, _ outbox.Envelope) error {
				got <- baggage.FromContext(ctx).Member("customer").Value()
				return nil
			}))

			member, err := baggage.NewMemberRaw("customer", "Zoë, gold")
			require.NoError(t, err)
			bag, err := baggage.New(member)
			require.NoError(t, err)
			ctx, request := spans.start(baggage.ContextWithBaggage(t.Context(), bag), "POST /orders")
			defer request.End()
			a.write(ctx, t, event())
			require.Equal(t, "Zoë, gold", <-got)
		})
	}
}

func TestEventsOfTheColdPathAreLinkedToo(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans)), on(succeed))
	ctx, request := spans.start(t.Context(), "POST /orders")
	defer request.End()

	// In a transaction that the adapter did not begin, so the poller delivers it.
	tx, err := a.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = a.adapter.Write(ctx, tx, event())
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	// Delayed, so the poller delivers it.
	delayed := event()
	delayed.DeliverAfter = 30 * time.Millisecond
	a.write(ctx, t, delayed)

	for _, span := range spans.wait(t, deliverPlaced, 2) {
		require.Len(t, span.Links, 1)
		require.Equal(t, request.SpanContext().SpanID(), span.Links[0].SpanContext.SpanID())
		require.Nil(t, value(span, "outbox.outcome"), "done")
	}
}

func TestEachAttemptIsASpanWithItsOwnLink(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans)), on(func(_ context.Context, env outbox.Envelope) error {
		if env.Attempts < 2 {
			return context.DeadlineExceeded
		}
		return nil
	}))
	ctx, request := spans.start(t.Context(), "POST /orders")
	defer request.End()
	a.write(ctx, t, event())

	attempts := spans.wait(t, deliverPlaced, 3)
	traces := map[trace.TraceID]bool{}
	for i, span := range attempts {
		traces[span.SpanContext.TraceID()] = true
		require.Len(t, span.Links, 1)
		require.Equal(t, request.SpanContext().SpanID(), span.Links[0].SpanContext.SpanID())
		if i == 0 {
			require.Nil(t, value(span, "outbox.attempt"), "the first")
		} else {
			require.EqualValues(t, i+1, value(span, "outbox.attempt"))
		}
	}
	require.Len(t, traces, 3, "each attempt is a trace of its own")
	require.Equal(t, "retry", value(attempts[0], "outbox.outcome"))
	require.Equal(t, codes.Error, attempts[0].Status.Code)
	require.Equal(t, "context deadline exceeded", attempts[0].Status.Description)
	require.Equal(t, "context.deadlineExceededError", value(attempts[0], "error.type"))
	require.Len(t, attempts[0].Events, 1)
	require.Equal(t, "exception", attempts[0].Events[0].Name)
	require.Nil(t, value(attempts[2], "outbox.outcome"), "done")
	require.Nil(t, value(attempts[2], "error.type"))
}

func TestOneTraceAcrossTwoOutboxes(t *testing.T) {
	t.Parallel()
	for _, childOf := range []bool{false, true} {
		t.Run(map[bool]string{false: "by link", true: "by parent"}[childOf], func(t *testing.T) {
			t.Parallel()
			db := openDB(t)
			api, worker := newRecording(t), newRecording(t)
			cfg := outbox.Config{Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{outboxotel.Hook(outboxotel.WithTracerProvider(api))}}
			writer := run(t, db.DB, cfg)
			opts := []outboxotel.Option{outboxotel.WithTracerProvider(worker)}
			if childOf {
				opts = append(opts, outboxotel.WithChildOf())
			}
			run(t, db.Reopen(t).DB, outbox.Config{Interceptors: []outbox.Interceptor{outboxotel.Interceptor(opts...)}}, on(succeed))

			ctx, request := api.start(t.Context(), "POST /orders")
			writer.write(ctx, t, event())
			request.End()

			span := worker.wait(t, deliverPlaced, 1)[0]
			producer := span.Parent
			if !childOf {
				require.Len(t, span.Links, 1)
				producer = span.Links[0].SpanContext
			}
			require.Equal(t, request.SpanContext().TraceID(), producer.TraceID())
			require.Equal(t, request.SpanContext().SpanID(), producer.SpanID())
			require.Empty(t, api.named(deliverPlaced))
			require.Empty(t, worker.named("POST /orders"))
		})
	}
}

package outboxotel_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

// remoteContext carries a span of another process, with a tracestate.
func remoteContext(t *testing.T) context.Context {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=1")
	require.NoError(t, err)
	return trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
}

const remoteParent = "00-01000000000000000000000000000000-0200000000000000-01"

// before runs the hook like a writer.
func before(ctx context.Context, t *testing.T, envs []outbox.Envelope, opts ...outboxotel.Option) []outbox.Envelope {
	t.Helper()
	envs, err := outboxotel.Hook(opts...).BeforeWrite(ctx, envs)
	require.NoError(t, err)
	return envs
}

func withHeaders(headers map[string]string) []outbox.Envelope {
	env := event()
	env.Headers = headers
	return []outbox.Envelope{env}
}

func TestTheContextIsStoredInTheHeaders(t *testing.T) {
	t.Parallel()
	a := run(t, openDB(t).DB, outbox.Config{Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{outboxotel.Hook()}})
	member, err := baggage.NewMemberRaw("customer", "50% off, today")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	env := event()
	env.Headers = map[string]string{"mine": "kept"}
	id := a.write(baggage.ContextWithBaggage(remoteContext(t), bag), t, env)[0]

	var headers map[string]string
	require.NoError(t, json.Unmarshal([]byte(a.headers(t, id)), &headers))
	require.Equal(t, map[string]string{
		"mine": "kept", "traceparent": remoteParent, "tracestate": "vendor=1", "baggage": "customer=50%25%20off%2C%20today",
	}, headers)
	require.Equal(t, map[string]string{"mine": "kept"}, env.Headers, "the caller's map is the caller's")
}

func TestWithoutAnActiveSpanNothingIsAdded(t *testing.T) {
	t.Parallel()
	a := run(t, openDB(t).DB, outbox.Config{Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{outboxotel.Hook()}})
	id := a.write(t.Context(), t, event())[0]
	require.Empty(t, a.headers(t, id))

	member, err := baggage.NewMember("customer", "1")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	id = a.write(baggage.ContextWithBaggage(t.Context(), bag), t, event())[0]
	require.Empty(t, a.headers(t, id), "baggage travels with a trace")

	// Headers that were copied from another event by hand are not changed.
	forwarded := map[string]string{"traceparent": remoteParent, "tracestate": "vendor=1"}
	require.Equal(t, forwarded, before(t.Context(), t, withHeaders(forwarded))[0].Headers)
}

func TestASpanThatIsNotSampledTravelsToo(t *testing.T) {
	t.Parallel()
	spans := newRecording(t, sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx, span := spans.start(t.Context(), "POST /orders")
	defer span.End()
	parent := before(ctx, t, withHeaders(nil))[0].Headers["traceparent"]
	require.True(t, strings.HasSuffix(parent, "-00"), parent)
	require.Contains(t, parent, span.SpanContext().TraceID().String())
}

func TestHeadersOfAnotherTraceAreReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	ctx, span := spans.start(t.Context(), "a listener that writes")
	defer span.End()
	copied := map[string]string{"traceparent": remoteParent, "tracestate": "vendor=1", "baggage": "customer=1", "mine": "kept"}
	got := before(ctx, t, withHeaders(copied))[0].Headers
	require.Len(t, got, 2, "neither the other trace's state nor its baggage")
	require.Equal(t, "kept", got["mine"])
	require.Contains(t, got["traceparent"], span.SpanContext().TraceID().String())
	require.Equal(t, remoteParent, copied["traceparent"], "the caller's map is the caller's")
}

func TestEnvelopesThatShareAMapGetOneEach(t *testing.T) {
	t.Parallel()
	shared := map[string]string{"mine": "kept"}
	envs := before(remoteContext(t), t, append(withHeaders(shared), withHeaders(shared)...))
	envs[0].Headers["more"] = "of the first"
	require.NotContains(t, envs[1].Headers, "more")
	require.Equal(t, map[string]string{"mine": "kept"}, shared)
}

// format is a user's own propagator.
type format struct {
	fields []string
	inject func(carrier propagation.TextMapCarrier)
}

func (f format) Inject(_ context.Context, carrier propagation.TextMapCarrier) { f.inject(carrier) }

func (format) Extract(context.Context, propagation.TextMapCarrier) context.Context {
	panic("cannot read")
}

func (f format) Fields() []string { return f.fields }

func TestWhatAPropagatorSetsReplacesWhatIsThere(t *testing.T) {
	t.Parallel()
	f := format{fields: []string{"claimed"}, inject: func(c propagation.TextMapCarrier) {
		c.Set("claimed", "first")
		c.Set("claimed", "injected")
		c.Set("unclaimed", "injected")
		c.Set("new", "injected")
		if c.Get("claimed") != "injected" || c.Get("absent") != "" || len(c.Keys()) != 3 {
			panic("the carrier does not keep what it is given")
		}
	}}
	got := before(remoteContext(t), t, withHeaders(map[string]string{"claimed": "user's", "unclaimed": "user's"}), outboxotel.WithPropagator(f))
	require.Equal(t, map[string]string{"claimed": "injected", "unclaimed": "injected", "new": "injected"}, got[0].Headers)
}

func TestATraceContextThatTheOutboxWouldRefuseIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, inject := range map[string]func(propagation.TextMapCarrier){
		"an empty key":              func(c propagation.TextMapCarrier) { c.Set("", "x") },
		"a key with NUL":            func(c propagation.TextMapCarrier) { c.Set("a\x00b", "x") },
		"a value with NUL":          func(c propagation.TextMapCarrier) { c.Set("trace", "a\x00b") },
		"a key that is not UTF-8":   func(c propagation.TextMapCarrier) { c.Set("a\xff", "x") },
		"a value that is not UTF-8": func(c propagation.TextMapCarrier) { c.Set("trace", "a\xff") },
		"half of it refused":        func(c propagation.TextMapCarrier) { c.Set("trace", "fine"); c.Set("span", "\x00") },
		"too long":                  func(c propagation.TextMapCarrier) { c.Set("trace", strings.Repeat("x", 16<<10)) },
		"a panic":                   func(propagation.TextMapCarrier) { panic("cannot write") },
		"a panic half way":          func(c propagation.TextMapCarrier) { c.Set("trace", "fine"); panic("cannot write") },
		"nothing at all":            func(propagation.TextMapCarrier) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := run(t, openDB(t).DB, outbox.Config{
				Mode:  outbox.WriterOnly{},
				Hooks: []outbox.WriterHook{outboxotel.Hook(outboxotel.WithPropagator(format{[]string{"trace"}, inject}))},
			})
			env := event()
			env.Headers = map[string]string{"mine": "kept", "trace": "another event's"}
			id := a.write(remoteContext(t), t, env)[0]
			require.JSONEq(t, `{"mine":"kept"}`, a.headers(t, id))
		})
	}
}

func TestTheLongestBaggageFits(t *testing.T) {
	t.Parallel()
	member, err := baggage.NewMemberRaw("k", strings.Repeat("x", 4000))
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	got := before(baggage.ContextWithBaggage(remoteContext(t), bag), t, withHeaders(nil))
	require.Len(t, got[0].Headers, 3)
}

func TestAPropagatorThatPanicsDoesNotFailTheDelivery(t *testing.T) {
	t.Parallel()
	type key struct{}
	spans := newRecording(t)
	deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans), outboxotel.WithPropagator(format{}))(outbox.ListenerFunc(
		func(ctx context.Context, _ outbox.Envelope) error {
			require.Equal(t, "kept", ctx.Value(key{}))
			return nil
		}))
	err := deliver.OnEvent(context.WithValue(t.Context(), key{}, "kept"), withHeaders(map[string]string{"trace": "x"})[0])
	require.NoError(t, err)
	require.Empty(t, spans.wait(t, deliverPlaced, 1)[0].Links)
}

func TestWithProducerSpanAWriteHasASpan(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans), outboxotel.WithProducerSpan()), on(succeed))
	ctx, request := spans.start(t.Context(), "POST /orders")
	id := a.write(ctx, t, event())[0]
	request.End()

	span := spans.wait(t, "write order/order.placed", 1)[0]
	require.Equal(t, trace.SpanKindProducer, span.SpanKind)
	require.Equal(t, request.SpanContext().SpanID(), span.Parent.SpanID())
	require.Equal(t, map[string]any{
		"messaging.system": "outbox", "messaging.operation.type": "send", "messaging.operation.name": "write",
		"messaging.destination.name": "order/order.placed", "messaging.message.id": id,
		"outbox.aggregate.type": "order", "outbox.aggregate.id": "o-1", "outbox.event.type": "order.placed",
	}, attributes(span))
	delivery := spans.wait(t, deliverPlaced, 1)[0]
	require.Equal(t, span.SpanContext.SpanID(), delivery.Links[0].SpanContext.SpanID(), "linked to the write, not to the request")
}

func TestABatchIsOneSpan(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	opts := []outboxotel.Option{outboxotel.WithTracerProvider(spans), outboxotel.WithProducerSpan()}
	same := before(t.Context(), t, []outbox.Envelope{event(), event(), event()}, opts...)
	span := spans.wait(t, "write order/order.placed", 1)[0]
	require.EqualValues(t, 3, value(span, "messaging.batch.message_count"))
	require.Nil(t, value(span, "messaging.message.id"))
	for _, env := range same {
		require.Contains(t, env.Headers["traceparent"], span.SpanContext.SpanID().String())
	}

	paid, basket := event(), event()
	paid.EventType = "order.paid"
	basket.AggregateType = "basket"
	before(t.Context(), t, []outbox.Envelope{event(), paid}, opts...)
	before(t.Context(), t, []outbox.Envelope{event(), basket}, opts...)
	for _, span := range spans.wait(t, "write", 2) {
		require.Equal(t, map[string]any{
			"messaging.system": "outbox", "messaging.operation.type": "send", "messaging.operation.name": "write",
			"messaging.batch.message_count": int64(2),
		}, attributes(span), "several kinds have no one destination")
	}
}

func TestTheGlobalAggregateIsNotInTheDestination(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	env := event()
	env.AggregateType, env.AggregateID = outbox.Global, ""
	before(t.Context(), t, []outbox.Envelope{env}, outboxotel.WithTracerProvider(spans), outboxotel.WithProducerSpan())
	span := spans.wait(t, "write order.placed", 1)[0]
	require.NotContains(t, attributes(span), "outbox.aggregate.id")
}

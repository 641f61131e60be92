// Package brokers_test has the code of docs/how-to/brokers.md.
package brokers_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
)

type order struct{ ID string }

var (
	orderPlaced   = outbox.NewTopic[order]("Order", "OrderPlaced")
	orderPaid     = outbox.NewTopic[order]("Order", "OrderPaid")
	orderRefunded = outbox.NewTopic[order]("Order", "OrderRefunded")
)

func newRelay(publisher relay.Publisher) (*relay.Relay, error) {
	return relay.New(relay.Config{
		Publisher: publisher, // from relaynats.New, relaykafka.New, …
		Source:    "/orders",
		Routes: []relay.Route{
			relay.To("orders.placed", orderPlaced.Kind()),
			relay.To("orders.paid", orderPaid.Kind(), orderRefunded.Kind()),
		},
	})
}

func run(ctx context.Context, ob *outbox.Outbox, r *relay.Relay) error {
	if err := ob.Register(r.Bindings()...); err != nil {
		return err
	}
	err := ob.Run(ctx) // until ctx ends; then it publishes what it has in hand
	return errors.Join(err, r.Close(context.WithoutCancel(ctx)))
}

var byRegion = relay.Route{
	Kinds:   []outbox.EventKind{orderPlaced.Kind()},
	TopicOf: func(env outbox.Envelope) (string, error) { return "orders." + env.Headers["region"], nil },
	KeyOf:   func(env outbox.Envelope) string { return env.Headers["customer"] },
	HeadersOf: func(env outbox.Envelope) map[string]string {
		headers := map[string]string{"tenant": env.TenantID}
		maps.Copy(headers, env.Headers) // such as the trace context
		return headers
	},
}

// Settings are the app's own.
type Settings struct{ Broker string }

func relayOption() fx.Option {
	return outboxfx.AsRelay(newRelayConfig, []relay.Route{relay.To("orders.placed", orderPlaced.Kind())})
}

func newRelayConfig(s Settings) (relay.Config, error) {
	publisher, err := newPublisher(s.Broker) // relaynats.New, relaykafka.New, …
	return relay.Config{Publisher: publisher, Source: "/orders"}, err
}

func newRelayWithMetrics(publisher relay.Publisher, routes []relay.Route) (*relay.Relay, error) {
	metrics, err := outboxprom.NewRelayMetrics(prometheus.DefaultRegisterer) // or outboxotel.NewRelayMetrics()
	if err != nil {
		return nil, err
	}
	return relay.New(relay.Config{Publisher: publisher, Source: "/orders", Routes: routes, Metrics: metrics})
}

// recording is a publisher that passes its messages on.
type recording struct {
	messages chan relay.Message
	closed   bool
}

func newRecording() *recording { return &recording{messages: make(chan relay.Message, 10)} }

func (r *recording) Publish(_ context.Context, messages []relay.Message) []error {
	for _, m := range messages {
		r.messages <- m
	}
	return nil // all are acknowledged
}

func (r *recording) Ping(context.Context) error { return nil }

func (r *recording) Close(context.Context) error {
	r.closed = true
	return nil
}

var ofTheApp = newRecording()

func newPublisher(string) (relay.Publisher, error) { return ofTheApp, nil }

func write(t *testing.T, store *outboxtest.Store, w *outbox.Writer, env outbox.Envelope) {
	t.Helper()
	require.NoError(t, outbox.InTx(t.Context(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := w.Write(ctx, env)
		return err
	}))
}

func TestRelayPublishesAndIsClosed(t *testing.T) {
	t.Parallel()
	publisher, store := newRecording(), outboxtest.NewStore()
	r, err := newRelay(publisher)
	require.NoError(t, err)
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	require.NoError(t, err)
	write(t, store, ob.Writer(), orderPaid.Envelope("o-1", order{"o-1"}))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, ob, r) }()
	m := <-publisher.messages
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, "orders.paid", m.Topic)
	require.Equal(t, "o-1", m.Key)
	require.True(t, publisher.closed)
}

func TestRelayOfAnApp(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	app := fx.New(
		fx.NopLogger, fx.Supply(new(sql.DB), Settings{Broker: "127.0.0.1"}),
		outboxfx.NewModule(outboxfx.WithStore(store)), relayOption(),
	)
	require.NoError(t, app.Start(t.Context()))
	require.NoError(t, app.Stop(t.Context()))
	require.True(t, ofTheApp.closed)
}

func TestRouteWithFunctions(t *testing.T) {
	t.Parallel()
	publisher := newRecording()
	r, err := newRelayWithMetrics(publisher, []relay.Route{byRegion})
	require.NoError(t, err)
	env := orderPlaced.Envelope("o-1", order{"o-1"})
	env.EventID, env.TenantID, env.Headers = "e-1", "acme", map[string]string{"region": "north", "customer": "c-1"}
	r.Publish(t.Context(), []outbox.Envelope{env})
	m := <-publisher.messages
	require.Equal(t, []string{"orders.north", "c-1", "acme"}, []string{m.Topic, m.Key, m.Headers["tenant"]})
	require.NoError(t, r.Close(t.Context()))
}

// Package metricsandalerts_test holds the code of docs/how-to/metrics-and-alerts.md.
package metricsandalerts_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/fxprom"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
)

func withPrometheus(db outbox.DB, store outbox.Store, registry prometheus.Registerer) (*outbox.Outbox, error) {
	metrics, err := outboxprom.New(registry) // or prometheus.DefaultRegisterer
	if err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Metrics: metrics})
	if err != nil {
		return nil, err
	}
	return ob, metrics.WatchTable(ob)
}

func serveMetrics(mux *http.ServeMux, registry *prometheus.Registry) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
}

func withOpenTelemetry(db outbox.DB, store outbox.Store) (*outbox.Outbox, error) {
	metrics, err := outboxotel.NewMetrics(outboxotel.WithEventKinds(100))
	if err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Metrics: metrics})
	if err != nil {
		return nil, err
	}
	return ob, metrics.WatchTable(ob)
}

func withRelay(publisher relay.Publisher, routes []relay.Route, registry prometheus.Registerer) (*relay.Relay, error) {
	metrics, err := outboxprom.NewRelayMetrics(registry) // or outboxotel.NewRelayMetrics()
	if err != nil {
		return nil, err
	}
	return relay.New(relay.Config{Publisher: publisher, Routes: routes, Source: "/orders", Metrics: metrics})
}

func names(t *testing.T, registry *prometheus.Registry) (names []string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		names = append(names, family.GetName())
	}
	return names
}

func TestPrometheusSeesTheEngineAndTheTable(t *testing.T) {
	t.Parallel()
	store, registry := outboxtest.NewStore(), prometheus.NewRegistry()
	ob, err := withPrometheus(store.DB(), store, registry)
	require.NoError(t, err)
	found := names(t, registry)
	require.Contains(t, found, "outbox_enqueue_hot_total")
	require.Contains(t, found, "outbox_events_pending")
	mux, answer := http.NewServeMux(), httptest.NewRecorder()
	serveMetrics(mux, registry)
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Contains(t, answer.Body.String(), "outbox_enqueue_hot_total 0")
	require.NoError(t, ob.Close(context.Background()))
	require.Empty(t, names(t, registry), "closing the outbox unregisters them")
}

func TestOpenTelemetryWatchesTheTable(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob, err := withOpenTelemetry(store.DB(), store)
	require.NoError(t, err)
	require.NoError(t, ob.Close(context.Background()))
}

func TestALabelDistinguishesOutboxes(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	orders, err := outboxprom.New(registry, outboxprom.WithConstLabels(prometheus.Labels{"outbox": "orders"}))
	require.NoError(t, err)
	mail, err := outboxprom.New(registry, outboxprom.WithConstLabels(prometheus.Labels{"outbox": "mail"}))
	require.NoError(t, err)
	_, err = outboxprom.New(registry, outboxprom.WithConstLabels(prometheus.Labels{"outbox": "mail"}))
	require.ErrorIs(t, err, outboxprom.ErrRegistered)
	require.NoError(t, orders.Close())
	require.NoError(t, mail.Close())
}

type publisher struct{}

func (publisher) Publish(_ context.Context, messages []relay.Message) []error {
	return make([]error, len(messages))
}
func (publisher) Ping(context.Context) error  { return nil }
func (publisher) Close(context.Context) error { return nil }

func TestARelayHasMetricsOfItsOwn(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	kind := outbox.EventKind{AggregateType: "Order", EventType: "OrderPlaced"}
	r, err := withRelay(publisher{}, []relay.Route{relay.To("orders", kind)}, registry)
	require.NoError(t, err)
	require.Contains(t, names(t, registry), "outbox_relay_outage")
	require.NoError(t, r.Close(context.Background()))
	require.Empty(t, names(t, registry))
}

func newDB() *sql.DB { return nil }

func TestFxRegistersThem(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	require.NoError(t, fx.ValidateApp(
		outboxfx.NewModule(fxprom.Metrics(registry)), // nil is prometheus.DefaultRegisterer
		fx.Provide(newDB),
	))
}

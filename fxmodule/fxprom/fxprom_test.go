package fxprom_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/fxprom"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	depth   = "outbox_queue_hot_depth"
	up      = "outbox_table_up"
	delayed = "outbox_enqueue_hot_skipped_delayed_total"
)

// gathered are the values of the label outbox that each metric has, and its sum.
func gathered(t *testing.T, registry *prometheus.Registry) (labels map[string][]string, sums map[string]float64) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	labels, sums = map[string][]string{}, map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			sums[family.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			for _, label := range m.GetLabel() {
				if label.GetName() == "outbox" {
					labels[family.GetName()] = append(labels[family.GetName()], label.GetValue())
				}
			}
		}
	}
	return labels, sums
}

func module(opts ...outboxfx.Option) fx.Option {
	return outboxfx.NewModule(append(opts, outboxfx.WithStore(outboxtest.NewStore()))...)
}

func named(name string) fx.Option {
	return fx.Supply(fx.Annotate(new(sql.DB), fx.ResultTags(`name:"`+name+`"`)))
}

func TestMetricsAreRegisteredWhileTheAppRuns(t *testing.T) {
	t.Parallel()
	registry, db := prometheus.NewPedanticRegistry(), new(sql.DB)
	var w *outbox.Writer
	listener := outboxfx.AsBinding(func() outbox.Binding {
		return outbox.On("", "Placed", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))
	})
	app := fx.New(fx.NopLogger, fx.Supply(db), module(fxprom.Metrics(registry)), listener, fx.Populate(&w))
	require.NoError(t, app.Err())
	_, sums := gathered(t, registry)
	require.Empty(t, sums, "an app that was not started leaves nothing")

	require.NoError(t, app.Start(t.Context()))
	scope := outboxtest.NewScope(db)
	_, err := w.Write(scope.Context(t.Context()), outbox.Envelope{EventType: "Placed", DeliverAfter: 1 << 40, Payload: outbox.RawJSON("1")})
	require.NoError(t, errors.Join(err, scope.Commit()))
	_, sums = gathered(t, registry)
	require.InDelta(t, 1, sums[delayed], 0)
	require.InDelta(t, 1, sums[up], 0, "the table is watched")

	require.NoError(t, app.Stop(t.Context()))
	_, sums = gathered(t, registry)
	require.Empty(t, sums)
}

func TestTheOutboxesOfAnAppShareARegistry(t *testing.T) {
	t.Parallel()
	shop := outboxfx.WithConfig(outboxfx.Config{Metrics: outboxfx.MetricsConfig{NamePrefix: "shop"}})
	registry := prometheus.NewPedanticRegistry()
	metrics := fxprom.Metrics(registry, outboxprom.WithConstLabels(prometheus.Labels{"region": "eu"}))
	app := fx.New(fx.NopLogger, fx.Supply(new(sql.DB)), named("orders"), named("stock"), named("shop"),
		module(metrics), module(metrics, outboxfx.Named("orders")), module(metrics, outboxfx.Named("stock")), module(metrics, outboxfx.Named("shop"), shop))
	require.NoError(t, errors.Join(app.Err(), app.Start(t.Context())))
	labels, _ := gathered(t, registry)
	for metric, want := range map[string][]string{depth: {"", "orders", "stock"}, up: {"", "orders", "stock"}, "shop_table_up": {"shop"}} {
		require.Equal(t, want, labels[metric], metric)
	}
	require.NoError(t, app.Stop(t.Context()))
}

func TestANameThatIsTakenIsAnErrorOfTheStart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	newApp := func() *fx.App { return fx.New(fx.NopLogger, fx.Supply(new(sql.DB)), module(fxprom.Metrics(registry))) }
	first := newApp()
	require.NoError(t, first.Start(t.Context()))
	err := newApp().Start(t.Context())
	require.ErrorContains(t, err, "outboxfx: starting the outbox: starting the metrics: fxprom: registering the metrics")
	require.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
	labels, _ := gathered(t, registry)
	require.Contains(t, labels, depth, "the first app's metrics stay")
	require.NoError(t, first.Stop(t.Context()))
	again := newApp()
	require.NoError(t, errors.Join(again.Start(t.Context()), again.Stop(t.Context())))
}

func TestMetricsThatAreSwitchedOffAreNotRegistered(t *testing.T) {
	t.Parallel()
	no, registry := false, prometheus.NewRegistry()
	app := fx.New(fx.NopLogger, fx.Supply(new(sql.DB)), module(fxprom.Metrics(registry)),
		fx.Replace(outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &no}}))
	require.NoError(t, app.Start(t.Context()))
	labels, _ := gathered(t, registry)
	require.Empty(t, labels)
	require.NoError(t, app.Stop(t.Context()))
}

func TestWrongOptionsAreErrorsOfTheApp(t *testing.T) {
	t.Parallel()
	err := fx.New(fx.NopLogger, fx.Supply(new(sql.DB)), module(fxprom.Metrics(nil, outboxprom.WithEventLabels(-1)))).Err()
	require.ErrorContains(t, err, "WithEventLabels")
	err = fx.New(fx.NopLogger, fx.Supply(new(sql.DB)), module(fxprom.Metrics(nil), fxprom.Metrics(nil))).Err()
	require.ErrorContains(t, err, "WithMetrics is given twice")
}

package outboxfx_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var errPort = errors.New("port in use")

// startsFirst provides the database, with a start that comes before the outbox's.
func startsFirst(db *sql.DB, start func() error) fx.Option {
	return fx.Provide(func(lc fx.Lifecycle) *sql.DB {
		lc.Append(fx.StartHook(start))
		return db
	})
}

// noListener is an interceptor that no outbox can be made with.
func noListener(outbox.Listener) outbox.Listener { return nil }

// abortedApp is an app with an outbox that is not there in the end.
type abortedApp struct {
	name string
	run  func(t *testing.T, db *sql.DB, opts ...outboxfx.Option)
}

func abortedApps() []abortedApp {
	type options = []outboxfx.Option
	start := func(t *testing.T, want string, opts ...fx.Option) {
		t.Helper()
		app := fx.New(append(opts, fx.NopLogger)...)
		require.NoError(t, app.Err())
		require.ErrorContains(t, app.Start(t.Context()), want)
	}
	return []abortedApp{
		{"what starts before the outbox fails", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			start(t, "port in use", startsFirst(db, func() error { return errPort }), outboxfx.NewModule(opts...))
		}},
		{"what starts after the outbox fails", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			start(t, "port in use", fx.Supply(db), outboxfx.NewModule(opts...),
				fx.Invoke(func(lc fx.Lifecycle) { lc.Append(fx.StartHook(func() error { return errPort })) }))
		}},
		{"the outbox's own start fails", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			cfg := outboxfx.WithConfig(outboxfx.Config{TableName: "nowhere.events", CreateSchema: true})
			start(t, "nowhere.events", fx.Supply(db), outboxfx.NewModule(append(options{cfg}, opts...)...))
		}},
		{"the start's context ends", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			ctx, cancel := context.WithCancel(t.Context())
			app := fx.New(fx.NopLogger, startsFirst(db, func() error { cancel(); return nil }), outboxfx.NewModule(opts...))
			require.NoError(t, app.Err())
			require.Error(t, app.Start(ctx))
		}},
		{"a later Invoke fails", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			err := newError(fx.Supply(db), outboxfx.NewModule(opts...), fx.Invoke(func() error { return errPort }))
			require.ErrorIs(t, err, errPort)
		}},
		{"the outbox cannot be made", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			err := newError(fx.Supply(db), outboxfx.NewModule(append(options{outboxfx.WithInterceptors(noListener)}, opts...)...))
			require.ErrorContains(t, err, "outboxfx: making the outbox")
		}},
		{"it is not started", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			require.NoError(t, newError(fx.Supply(db), outboxfx.NewModule(opts...)))
		}},
		{"it is validated", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			require.NoError(t, fx.ValidateApp(fx.Supply(db), outboxfx.NewModule(opts...)))
		}},
		{"it stops", func(t *testing.T, db *sql.DB, opts ...outboxfx.Option) {
			app := fx.New(fx.NopLogger, fx.Supply(db), outboxfx.NewModule(opts...))
			require.NoError(t, app.Start(t.Context()))
			require.NoError(t, app.Stop(t.Context()))
		}},
	}
}

func TestAnAppThatIsNotThereLeavesNothingOnTheRegistry(t *testing.T) {
	t.Parallel()
	for _, aborted := range abortedApps() {
		t.Run(aborted.name, func(t *testing.T) {
			t.Parallel()
			db, registry := openSQLite(t), prometheus.NewPedanticRegistry()
			metrics := outboxfx.WithPrometheus(registry)
			aborted.run(t, db, metrics)
			require.Empty(t, gathered(t, registry))

			app := started(t, fx.Supply(db), outboxfx.NewModule(metrics))
			values := gathered(t, registry)
			require.Contains(t, values, "outbox_queue_hot_depth")
			require.Contains(t, values, "outbox_table_up")
			app.RequireStop()
			require.Empty(t, gathered(t, registry))
		})
	}
}

func TestAnOutboxWhoseMetricsAreTakenLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	db, registry := openSQLite(t), prometheus.NewRegistry()
	options := fx.Options(fx.NopLogger, fx.Supply(db, outboxfx.Config{Mode: outboxfx.WriterOnly}), outboxfx.NewModule(outboxfx.WithPrometheus(registry)))
	late := fx.New(options)
	require.NoError(t, late.Err())
	started(t, options)
	require.ErrorIs(t, late.Start(t.Context()), outboxprom.ErrRegistered, "both were made while the names were free")
	require.ErrorIs(t, newError(options), outboxprom.ErrRegistered)
	no := false
	off := outboxfx.WithConfig(outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &no}})
	require.NoError(t, newError(fx.Supply(db), outboxfx.NewModule(off, outboxfx.WithPrometheus(registry))), "what is switched off clashes with nothing")
	require.Contains(t, gathered(t, registry), "outbox_queue_hot_depth")
	require.Contains(t, gathered(t, registry), "outbox_table_up")
}

func TestNamesOfTheTableAreTakenWhenTheAppIsMade(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_events_pending", Help: "Somebody else's."})))
	err := newError(fx.Supply(openSQLite(t)), outboxfx.NewModule(outboxfx.WithPrometheus(registry)))
	require.ErrorContains(t, err, "outboxfx: the metrics of the outbox: outboxprom: registering the metrics of the table")
	require.ErrorContains(t, err, "outbox_events_pending")
	require.Len(t, gathered(t, registry), 1)
}

func TestNothingIsScrapedWhileAnAppIsMade(t *testing.T) {
	t.Parallel()
	registry := &watchedRegistry{Registry: prometheus.NewRegistry()}
	require.NoError(t, newError(fx.Supply(openSQLite(t)), outboxfx.NewModule(outboxfx.WithPrometheus(registry))))
	require.Positive(t, registry.times)
	require.Empty(t, registry.seen)
}

// watchedRegistry is scraped at the worst of times.
type watchedRegistry struct {
	*prometheus.Registry
	times int
	seen  []string
}

func (r *watchedRegistry) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	families, err := r.Gather()
	for _, family := range families {
		r.seen = append(r.seen, family.GetName())
	}
	r.times++
	return err
}

func TestWhatIsCountedBeforeTheStartIsScraped(t *testing.T) {
	t.Parallel()
	db, registry := openSQLite(t), prometheus.NewRegistry()
	var w *outbox.Writer
	app := fx.New(fx.NopLogger, fx.Supply(db), fx.Populate(&w), outboxfx.NewModule(outboxfx.WithPrometheus(registry)))
	require.NoError(t, app.Err())
	delayed := placed("o-1")
	delayed.DeliverAfter = 1 << 40
	write(t, db, w, delayed)
	require.NoError(t, app.Start(t.Context()))
	require.InDelta(t, 1, gathered(t, registry)["outbox_enqueue_hot_skipped_delayed_total"], 0)
	require.NoError(t, app.Stop(t.Context()))
}

// labelled is the values of the label outbox that a metric has, and whether it
// has that label at all.
func labelled(t *testing.T, registry *prometheus.Registry, metric string) (values []string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			value := "no label"
			for _, label := range m.GetLabel() {
				if label.GetName() == "outbox" {
					value = "=" + label.GetValue()
				}
			}
			values = append(values, value)
		}
	}
	return values
}

func TestTheOutboxesOfAnAppShareARegistry(t *testing.T) {
	t.Parallel()
	const depth, up = "outbox_queue_hot_depth", "outbox_table_up"
	for _, tc := range []struct {
		name   string
		all    []outboxprom.Option
		orders []outboxfx.Option
		single bool
		want   map[string][]string
	}{
		{name: "one unnamed outbox", single: true, want: map[string][]string{depth: {"no label"}, up: {"no label"}}},
		{name: "an unnamed and two named ones", want: map[string][]string{depth: {"=", "=orders", "=stock"}, up: {"=", "=orders", "=stock"}}},
		{
			name: "labels of the application's", all: []outboxprom.Option{outboxprom.WithConstLabels(prometheus.Labels{"region": "eu"}), outboxprom.WithEventLabels(0)},
			want: map[string][]string{depth: {"=", "=orders", "=stock"}},
		},
		{
			name:   "a prefix of one's own",
			orders: []outboxfx.Option{outboxfx.WithConfig(outboxfx.Config{Metrics: outboxfx.MetricsConfig{NamePrefix: "orders.outbox"}})},
			want:   map[string][]string{depth: {"=", "=stock"}, "orders_outbox_queue_hot_depth": {"=orders"}, "orders_outbox_table_up": {"=orders"}},
		},
		{
			name:   "a label of one's own",
			orders: []outboxfx.Option{outboxfx.WithPrometheus(nil)}, // replaced below
			want:   map[string][]string{depth: {"=", "=purchases", "=stock"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewPedanticRegistry()
			metrics := outboxfx.WithPrometheus(registry, tc.all...)
			opts := []fx.Option{fx.Supply(openSQLite(t)), outboxfx.NewModule(metrics)}
			if !tc.single {
				orders := append([]outboxfx.Option{outboxfx.Named("orders"), metrics}, tc.orders...)
				if tc.name == "a label of one's own" {
					orders[2] = outboxfx.WithPrometheus(registry, outboxprom.WithConstLabels(prometheus.Labels{"outbox": "purchases"}))
				}
				opts = append(opts, named("orders", openSQLite(t)), outboxfx.NewModule(orders...),
					named("stock", openSQLite(t)), outboxfx.NewModule(metrics, outboxfx.Named("stock")))
			}
			started(t, opts...)
			for name, want := range tc.want {
				require.Equal(t, want, labelled(t, registry, name), name)
			}
		})
	}
}

func TestMetricsEnabledAloneScrapesTheAppsRegistry(t *testing.T) {
	t.Parallel()
	yes, registry := true, prometheus.NewRegistry()
	on := outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &yes, NamePrefix: "shop"}}
	newRegisterer := func(*outbox.Outbox) prometheus.Registerer { return registry } // it may need the outbox
	started(t, fx.Supply(openSQLite(t), on), outboxfx.Module, fx.Provide(newRegisterer))
	require.Contains(t, gathered(t, registry), "shop_table_up")

	err := newError(fx.Supply(openSQLite(t), on), outboxfx.Module, fx.Provide(func(*absent) prometheus.Registerer { return registry }))
	require.ErrorContains(t, err, "metrics.enabled is true, but the module is given no metrics")

	other := prometheus.NewRegistry()
	started(t, fx.Supply(openSQLite(t)), outboxfx.Module, fx.Provide(func() prometheus.Registerer { return other }))
	require.Empty(t, gathered(t, other), "nobody asked for it")
}

func TestWithPrometheusRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	registry, no := prometheus.NewRegistry(), false
	prefixed := outboxfx.WithPrometheus(registry, outboxprom.WithPrefix("mine"))
	shop := outboxfx.MetricsConfig{NamePrefix: "shop"}
	for _, tc := range []struct {
		option outboxfx.Option
		cfg    outboxfx.MetricsConfig
		want   string // empty: no error
	}{
		{prefixed, shop, "the configuration of the outbox: metrics.name-prefix is set, but outboxprom.WithPrefix replaces it"},
		{prefixed, outboxfx.MetricsConfig{}, ""},
		{prefixed, outboxfx.MetricsConfig{NamePrefix: "shop", Enabled: &no}, ""},
		{outboxfx.WithPrometheus(registry), outboxfx.MetricsConfig{NamePrefix: "..."}, "WithPrefix"},
		{outboxfx.WithPrometheus(registry, outboxprom.WithEventLabels(-1)), outboxfx.MetricsConfig{}, "WithEventLabels"},
		{outboxfx.WithPrometheus((*prometheus.Registry)(nil)), outboxfx.MetricsConfig{}, "WithPrometheus of the outbox is given a nil *prometheus.Registry"},
	} {
		err := newError(fx.Supply(openSQLite(t), outboxfx.Config{Metrics: tc.cfg}), outboxfx.NewModule(tc.option, outboxfx.WithStore(sqlstore.SQLite())))
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.want)
	}
	require.Empty(t, gathered(t, registry))
}

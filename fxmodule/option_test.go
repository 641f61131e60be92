package outboxfx_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// counts are metrics that count deliveries.
type counts struct {
	outbox.NopMetrics
	prefix string

	mu        sync.Mutex
	delivered int
	closed    bool
}

func (c *counts) Delivered(outbox.EventKind, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delivered++
}

func (c *counts) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *counts) seen() (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered, c.closed
}

func TestEveryPartCanBeReplacedByAConstructorWithTheOutboxsOwnDatabase(t *testing.T) {
	t.Parallel()
	db, other, box := openSQLite(t), openSQLite(t), newInbox()
	var (
		w       *outbox.Writer
		metrics = &counts{}
		log     bytes.Buffer
		seen    []*sql.DB
		retries = make(chan int, 10)
		failed  sync.Once
	)
	app := fx.New(
		fx.NopLogger, named("orders", db), fx.Supply(other, box),
		outboxfx.NewModule(
			outboxfx.Named("orders"),
			outboxfx.WithConfig(func(*inbox) (outboxfx.Config, error) {
				return outboxfx.Config{CreateSchema: true, Poller: outboxfx.PollerConfig{Interval: 10 * time.Millisecond}}, nil
			}),
			outboxfx.WithStore(func(db *sql.DB, _ *inbox) (*sqlstore.Store, error) {
				seen = append(seen, db)
				return sqlstore.SQLite(sqlstore.WithTable("orders_events")), nil
			}),
			outboxfx.WithMetrics(func(prefix outboxfx.MetricsPrefix, db *sql.DB) *counts {
				seen = append(seen, db)
				metrics.prefix = string(prefix)
				return metrics
			}),
			outboxfx.WithRetryPolicy(func() outbox.RetryPolicyFunc {
				return func(attempt int) time.Duration { retries <- attempt; return 0 }
			}),
			outboxfx.WithLogger(func() *slog.Logger { return slog.New(slog.NewTextHandler(&log, nil)) }),
			outboxfx.WithRegistry(outbox.NewRegistry),
		),
		outboxfx.AsListener(func(b *inbox) outbox.Listener {
			return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
				var err error
				failed.Do(func() { err = errSMTP })
				if err != nil {
					return outbox.Done(), err
				}
				return b.OnEvent(ctx, env)
			})
		}, outboxfx.On("Order", "Placed"), outboxfx.For("orders")),
		fx.Invoke(fx.Annotate(func(got *outbox.Writer) { w = got }, fx.ParamTags(`name:"orders"`))),
	)
	require.NoError(t, app.Err())
	require.NoError(t, app.Start(t.Context()))
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
	require.NoError(t, app.Stop(t.Context()))

	require.Equal(t, []*sql.DB{db, db}, seen)
	require.Equal(t, "orders.outbox", metrics.prefix)
	delivered, closed := metrics.seen()
	require.Equal(t, 1, delivered)
	require.True(t, closed, "metrics that can be closed are closed with the outbox")
	require.Len(t, retries, 1)
	require.Contains(t, log.String(), "outbox=orders")
	var rows int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders_events").Scan(&rows))
	require.Equal(t, 1, rows)
}

func TestMetricsAreUsedUnlessSwitchedOff(t *testing.T) {
	t.Parallel()
	no := false
	for _, tc := range []struct {
		cfg       outboxfx.MetricsConfig
		prefix    string
		delivered int
	}{
		{outboxfx.MetricsConfig{}, "outbox", 1},
		{outboxfx.MetricsConfig{NamePrefix: "shop"}, "shop", 1},
		{outboxfx.MetricsConfig{Enabled: &no}, "outbox", 0},
	} {
		db, box, metrics := openSQLite(t), newInbox(), &counts{}
		var (
			w      *outbox.Writer
			prefix outboxfx.MetricsPrefix
		)
		app := fx.New(fx.NopLogger, fx.Supply(db, outboxfx.Config{Metrics: tc.cfg}), outboxfx.NewModule(outboxfx.WithMetrics(metrics)),
			outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")), fx.Populate(&w, &prefix))
		require.NoError(t, app.Start(t.Context()))
		write(t, db, w, placed("o-1"))
		box.awaits(t, "o-1")
		require.NoError(t, app.Stop(t.Context()))
		delivered, closed := metrics.seen()
		require.True(t, closed)
		require.Equal(t, tc.delivered, delivered)
		require.Equal(t, tc.prefix, string(prefix))
	}
}

func TestMetricsAreClosedWhenNoOutboxIsMadeOfThem(t *testing.T) {
	t.Parallel()
	metrics := &counts{}
	err := newError(fx.Supply(openSQLite(t)), outboxfx.NewModule(outboxfx.WithMetrics(metrics), outboxfx.WithInterceptors(noListener)))
	require.ErrorContains(t, err, "outboxfx: making the outbox")
	_, closed := metrics.seen()
	require.True(t, closed)
}

// deaf is a registry of the user's own kind.
type deaf struct{ box *inbox }

func (d deaf) ListenerFor(outbox.AggregateType, outbox.EventType) (outbox.Listener, bool) {
	return d.box, true
}

func TestARegistryOfOnesOwn(t *testing.T) {
	t.Parallel()
	db, box := openSQLite(t), newInbox()
	var w *outbox.Writer
	started(t, fx.Supply(db), fx.Populate(&w), outboxfx.NewModule(outboxfx.WithRegistry(deaf{box})))
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")

	err := newError(fx.Supply(db), outboxfx.NewModule(outboxfx.WithRegistry(deaf{box})), outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed")))
	require.ErrorContains(t, err, "outboxfx: listeners of the outbox: outbox: Config.Registry is not an *outbox.Registry")

	filled := outbox.NewRegistry()
	require.NoError(t, filled.Register(outbox.On("Order", "Placed", box)))
	err = newError(fx.Supply(db), outboxfx.NewModule(outboxfx.WithRegistry(filled)), outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed")))
	require.ErrorIs(t, err, outbox.ErrDuplicateListener)
}

func TestInterceptorsAndHooksRunInTheOrderOfTheOptions(t *testing.T) {
	t.Parallel()
	var d diary
	interceptor := func(name string) outbox.Interceptor {
		return outbox.Before(func(context.Context, outbox.Envelope) error { d.note(name); return nil })
	}
	hook := func(name string) outbox.WriterHook {
		return outbox.WriterHook{AfterWrite: func(context.Context, []outbox.Envelope) { d.note(name) }}
	}
	var want []string
	db, box := openSQLite(t), newInbox()
	opts := []fx.Option{
		named("orders", db), fx.Supply(openSQLite(t)), outboxfx.Module,
		outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed"), outboxfx.For("orders")),
	}
	for i := range 10 { // the order of a value group is random
		name := fmt.Sprintf("hook %d", i)
		opts = append(opts, outboxfx.AsHook(func() (outbox.WriterHook, error) { return hook(name), nil }, outboxfx.For("orders")))
	}
	for i := range 10 {
		name := fmt.Sprintf("interceptor %d", i)
		opts = append(opts, outboxfx.AsInterceptor(func() func(outbox.Listener) outbox.Listener { return interceptor(name) }, outboxfx.For("orders", "")))
	}
	opts = append(opts, outboxfx.AsHook(func() outbox.WriterHook { return hook("hook of another") }))
	want = append(want, "given hook")
	for i := range 10 {
		want = append(want, fmt.Sprintf("hook %d", i))
	}
	want = append(want, "given interceptor")
	for i := range 10 {
		want = append(want, fmt.Sprintf("interceptor %d", i))
	}
	var w *outbox.Writer
	started(t, append(
		opts, outboxfx.NewModule(outboxfx.Named("orders"), outboxfx.WithHooks(hook("given hook")), outboxfx.WithInterceptors(interceptor("given interceptor"))),
		fx.Invoke(fx.Annotate(func(got *outbox.Writer) { w = got }, fx.ParamTags(`name:"orders"`))))...)
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Equal(t, want, d.notes)
}

func TestAConfigOfTheNameIsTheOutboxs(t *testing.T) {
	t.Parallel()
	var prefix outboxfx.MetricsPrefix
	require.NoError(t, newError(named("orders", openSQLite(t)), outboxfx.NewModule(outboxfx.Named("orders")),
		// The unnamed Config is another outbox's.
		fx.Supply(outboxfx.Config{Mode: "nonsense"}),
		fx.Supply(fx.Annotate(outboxfx.Config{Metrics: outboxfx.MetricsConfig{NamePrefix: "shop"}}, fx.ResultTags(`name:"orders"`))),
		fx.Populate(fx.Annotate(&prefix, fx.ParamTags(`name:"orders"`)))))
	require.Equal(t, outboxfx.MetricsPrefix("shop"), prefix)

	err := newError(named("orders", openSQLite(t)), outboxfx.NewModule(outboxfx.Named("orders")),
		fx.Provide(fx.Annotate(needyConfig, fx.ResultTags(`name:"orders"`))))
	require.ErrorContains(t, err, `outboxfx: the Config of the outbox "orders" has a constructor that needs a *outboxfx_test.absent`)

	// A zero Config from a constructor that can be called is a Config.
	require.NoError(t, newError(fx.Supply(openSQLite(t), &absent{}), outboxfx.Module,
		fx.Provide(func(*absent, struct {
			fx.In
			None *inbox  `optional:"true"`
			Many []error `group:"errors"`
		},
		) outboxfx.Config {
			return outboxfx.Config{}
		})))
}

package outboxfx_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestAnAppThatWritesDelivers(t *testing.T) {
	t.Parallel()
	db, box := newPool(), newInbox()
	var (
		o    *outbox.Outbox
		w    *outbox.Writer
		dead *outbox.DeadLetters
	)
	started(t, fx.Supply(db), outboxfx.NewModule(inMemory()), box.listens(), fx.Populate(&o, &w, &dead))
	require.Same(t, o.Writer(), w)
	require.Same(t, o.DeadLetters(), dead)
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
}

func TestNamedOutboxesHaveTheirOwnPartsAndShareAListener(t *testing.T) {
	t.Parallel()
	orders, stock, plain := newPool(), newPool(), newPool()
	shared, onlyStock := newInbox(), newInbox()
	var w struct {
		fx.In
		Orders     *outbox.Writer `name:"orders"`
		Stock      *outbox.Writer `name:"stock"`
		Plain      *outbox.Writer
		OrdersDead *outbox.DeadLetters `name:"orders"`
	}
	started(
		t, named("orders", orders), named("stock", stock), fx.Supply(plain),
		outboxfx.NewModule(outboxfx.Named("orders"), inMemory(), outboxfx.WithConfig(outboxfx.Config{Mode: outboxfx.MultiNode, Dispatch: outboxfx.DispatchConfig{OnUnroutable: outboxfx.KillUnroutable}})),
		outboxfx.NewModule(outboxfx.Named("stock"), inMemory()), outboxfx.NewModule(inMemory()),
		shared.listens(outboxfx.For("orders", ""), outboxfx.For("stock")),
		outboxfx.AsListener(func() *inbox { return onlyStock }, outboxfx.On("", "Counted"), outboxfx.On("Item", "Gone"), outboxfx.For("stock")),
		fx.Populate(&w),
	)
	write(t, orders, w.Orders, placed("o-1"))
	write(t, stock, w.Stock, placed("s-1"))
	write(t, plain, w.Plain, placed("p-1"))
	shared.awaits(t, "o-1", "s-1", "p-1")
	write(t, stock, w.Stock, outbox.Envelope{EventType: "Counted", AggregateID: "s-2", Payload: outbox.RawJSON("1")})
	write(t, stock, w.Stock, outbox.Envelope{EventType: "Gone", AggregateType: "Item", AggregateID: "s-3", Payload: outbox.RawJSON("1")})
	onlyStock.awaits(t, "s-2", "s-3")

	// The orders' outbox has no listener for it.
	write(t, orders, w.Orders, outbox.Envelope{EventType: "Counted", Payload: outbox.RawJSON("1")})
	require.Eventually(t, func() bool {
		n, err := w.OrdersDead.Count(context.Background(), outbox.DeadFilter{})
		return err == nil && n == 1
	}, 20*time.Second, 2*time.Millisecond)
}

func TestSeveralListenersOfOnePair(t *testing.T) {
	t.Parallel()
	db, mail, search := newPool(), newInbox(), newInbox()
	var w *outbox.Writer
	started(t, fx.Supply(db), outboxfx.NewModule(inMemory()), fx.Populate(&w),
		mail.listens(outboxfx.As("mail")), search.listens(outboxfx.As("search")))
	write(t, db, w, placed("o-1"))
	mail.awaits(t, "o-1")
	search.awaits(t, "o-1")
}

// shipping is a listener that writes to the outbox that it listens to.
type shipping struct {
	db *sql.DB
	w  *outbox.Writer
}

func newShipping(db *sql.DB, w *outbox.Writer) *shipping { return &shipping{db, w} }

func (s *shipping) OnEvent(ctx context.Context, env outbox.Envelope) error {
	return outbox.InTx(ctx, outboxtest.NewTransactor(s.db), func(ctx context.Context) error {
		_, err := s.w.Write(ctx, outbox.Envelope{EventType: "Shipped", AggregateType: "Order", AggregateID: env.AggregateID, Payload: outbox.RawJSON("1")})
		return err
	})
}

func TestAListenerMayDependOnAServiceThatWrites(t *testing.T) {
	t.Parallel()
	db, shipped := newPool(), newInbox()
	var w *outbox.Writer
	started(t, fx.Supply(db), outboxfx.NewModule(inMemory()), fx.Provide(newShipping), fx.Populate(&w),
		outboxfx.AsListener(func(s *shipping) outbox.Listener { return s }, outboxfx.On("Order", "Placed")),
		outboxfx.AsListener(func() *inbox { return shipped }, outboxfx.On("Order", "Shipped")))
	write(t, db, w, placed("o-1"))
	shipped.awaits(t, "o-1")
}

type listenerDeps struct {
	fx.In
	Box  *inbox
	Name string    `name:"subject"`
	None *shipping `optional:"true"`
}

func TestEveryShapeOfConstructor(t *testing.T) {
	t.Parallel()
	const odd = outbox.EventType("x,y`z \"€\n") // a pair may hold any character
	db, box := newPool(), newInbox()
	keep := func(ctx context.Context, _ int, env outbox.Envelope) error {
		return box.OnEvent(ctx, env)
	}
	var w *outbox.Writer
	started(
		t, fx.Supply(db, box), outboxfx.NewModule(inMemory()), fx.Populate(&w),
		fx.Supply(fx.Annotate("mail", fx.ResultTags(`name:"subject"`))),
		outboxfx.AsListener(func(in listenerDeps) (*inbox, error) { return in.Box, nil }, outboxfx.On("Order", "Placed")),
		outboxfx.AsListener(func(b *inbox, _ ...int) outbox.ListenerFunc { return b.OnEvent }, outboxfx.On("Order", odd)),
		outboxfx.AsBinding(func(*inbox) outbox.Binding { return outbox.NewTopic[int]("Order", "Bound").Listen(keep) }),
		outboxfx.AsBinding(func() ([]outbox.Binding, error) {
			return []outbox.Binding{outbox.NewTopic[int]("Order", "One").Listen(keep), outbox.NewTopic[int]("Order", "Two").Listen(keep)}, nil
		}),
		fx.Module("mail",
			fx.Provide(func(*outbox.Writer) string { return "private" }, fx.Private),
			outboxfx.AsListener(func(string) outbox.Listener { return box }, outboxfx.On("Order", "Private"))),
	)
	for _, event := range []outbox.EventType{"Placed", odd, "Bound", "One", "Two", "Private"} {
		write(t, db, w, outbox.Envelope{EventType: event, AggregateType: "Order", AggregateID: string(event), Payload: outbox.RawJSON("1")})
	}
	box.awaits(t, "Placed", string(odd), "Bound", "One", "Two", "Private")
}

func TestTheAppChangesTheConfig(t *testing.T) {
	t.Parallel()
	shop := outboxfx.Config{Metrics: outboxfx.MetricsConfig{NamePrefix: "shop"}}
	load := func() (outboxfx.Config, error) { return shop, nil }
	tagged := func(v any) any { return fx.Annotate(v, fx.ResultTags(`name:"orders"`)) }
	for name, opts := range map[string][]fx.Option{
		"fx.Replace":                  {outboxfx.NewModule(inMemory()), fx.Replace(shop)},
		"fx.Decorate":                 {outboxfx.NewModule(inMemory()), fx.Decorate(load)},
		"fx.Decorate of WithConfig":   {outboxfx.NewModule(inMemory(), outboxfx.WithConfig(outboxfx.Config{})), fx.Decorate(func(outboxfx.Config) outboxfx.Config { return shop })},
		"WithConfig of a value":       {outboxfx.NewModule(inMemory(), outboxfx.WithConfig(shop))},
		"WithConfig of a constructor": {outboxfx.NewModule(inMemory(), outboxfx.WithConfig(load))},
		"WithConfig of what is named": {outboxfx.NewModule(inMemory(), outboxfx.WithConfig(func(in struct {
			fx.In
			C outboxfx.Config `name:"orders"`
		},
		) outboxfx.Config {
			return in.C
		})), fx.Supply(tagged(shop))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var prefix outboxfx.MetricsPrefix
			require.NoError(t, newError(append(opts, fx.Supply(newPool()), fx.Populate(&prefix))...))
			require.EqualValues(t, "shop", prefix)
		})
	}
	for name, change := range map[string]fx.Option{
		"fx.Replace":  fx.Replace(tagged(shop)),
		"fx.Decorate": fx.Decorate(tagged(load)),
	} {
		t.Run(name+" of a named one", func(t *testing.T) {
			t.Parallel()
			var prefixes struct {
				fx.In
				Orders outboxfx.MetricsPrefix `name:"orders"`
				Stock  outboxfx.MetricsPrefix `name:"stock"`
				Plain  outboxfx.MetricsPrefix
			}
			require.NoError(t, newError(named("orders", newPool()), named("stock", newPool()), fx.Supply(newPool()), change, fx.Populate(&prefixes),
				outboxfx.NewModule(inMemory(), outboxfx.Named("orders")), outboxfx.NewModule(inMemory(), outboxfx.Named("stock")), outboxfx.NewModule(inMemory())))
			require.EqualValues(t, []outboxfx.MetricsPrefix{"shop", "stock.outbox", "outbox"}, []outboxfx.MetricsPrefix{prefixes.Orders, prefixes.Stock, prefixes.Plain})
		})
	}
}

// counts are metrics that count deliveries.
type counts struct {
	outbox.NopMetrics
	delivered, watched, closed atomic.Int32
}

func (c *counts) Delivered(outbox.EventKind, time.Duration) { c.delivered.Add(1) }

func (c *counts) WatchTable(interface {
	Stats(ctx context.Context) (outbox.Stats, error)
},
) error {
	c.watched.Add(1)
	return nil
}

func (c *counts) Close() error { c.closed.Add(1); return nil }

func TestEveryPartCanBeReplacedByAConstructorWithTheOutboxsOwnDependencies(t *testing.T) {
	t.Parallel()
	db, box, metrics, log := newPool(), newInbox(), &counts{}, &bytes.Buffer{}
	var (
		w       *outbox.Writer
		own     []any
		retries atomic.Int32
		failed  atomic.Bool
	)
	app := fx.New(
		fx.NopLogger, named("orders", db), fx.Supply(newPool(), box),
		outboxfx.NewModule(
			outboxfx.Named("orders"),
			outboxfx.WithConfig(func(*inbox) (outboxfx.Config, error) {
				return outboxfx.Config{Poll: outboxfx.PollConfig{Interval: 10 * time.Millisecond}}, nil
			}),
			outboxfx.WithStore(func(db *sql.DB, _ *inbox) (*outboxtest.Store, error) {
				own = append(own, db)
				return outboxtest.NewStore(), nil
			}),
			outboxfx.WithMetrics(func(prefix outboxfx.MetricsPrefix, name outboxfx.Name, c outboxfx.Config) *counts {
				own = append(own, prefix, name, c.Poll.Interval)
				return metrics
			}),
			outboxfx.WithRetryPolicy(func() outbox.RetryPolicyFunc {
				return func(int) time.Duration { retries.Add(1); return 0 }
			}),
			outboxfx.WithLogger(func() *slog.Logger { return slog.New(slog.NewTextHandler(log, nil)) }),
			outboxfx.WithRegistry(outbox.NewRegistry),
		),
		outboxfx.AsListener(func(b *inbox) outbox.Listener {
			return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
				if !failed.Swap(true) {
					return errSMTP
				}
				return b.OnEvent(ctx, env)
			})
		}, outboxfx.On("Order", "Placed"), outboxfx.For("orders")),
		fx.Populate(fx.Annotate(&w, fx.ParamTags(`name:"orders"`))),
	)
	require.NoError(t, app.Err())
	require.NoError(t, app.Start(t.Context()))
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
	require.NoError(t, app.Stop(t.Context()))

	require.Equal(t, []any{db, outboxfx.MetricsPrefix("orders.outbox"), outboxfx.Name("orders"), 10 * time.Millisecond}, own)
	require.EqualValues(t, []int32{1, 1, 1, 1}, []int32{metrics.delivered.Load(), metrics.watched.Load(), metrics.closed.Load(), retries.Load()})
	require.Contains(t, log.String(), "outbox=orders")
}

func TestMetricsAndTracesCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	no := false
	for name, cfg := range map[string]outboxfx.Config{
		"on": {}, "off": {Metrics: outboxfx.MetricsConfig{Enabled: &no}, Tracing: outboxfx.TracingConfig{Enabled: &no}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, box, metrics, traced := newPool(), newInbox(), &counts{}, newInbox()
			var w *outbox.Writer
			app := fx.New(fx.NopLogger, fx.Supply(db), box.listens(), fx.Populate(&w), fx.Replace(cfg),
				outboxfx.NewModule(inMemory(), outboxfx.WithMetrics(metrics), outboxfx.WithTracing(noteWrite(traced, "hook"), noteDelivery(traced, "interceptor"))))
			require.NoError(t, app.Start(t.Context()))
			write(t, db, w, placed("o-1"))
			box.awaits(t, "o-1")
			require.NoError(t, app.Stop(t.Context()))
			require.EqualValues(t, 1, metrics.closed.Load())
			require.Equal(t, name == "on", metrics.delivered.Load() == 1)
			require.Equal(t, name == "on", metrics.watched.Load() == 1)
			require.Len(t, traced.notes(), map[string]int{"on": 2}[name])
		})
	}
}

func TestMetricsAreClosedWhenTheOutboxCannotBeBuilt(t *testing.T) {
	t.Parallel()
	metrics := &counts{}
	err := newError(fx.Supply(newPool()), outboxfx.NewModule(inMemory(), outboxfx.WithMetrics(metrics), outboxfx.WithInterceptors(nil)))
	require.ErrorContains(t, err, "outboxfx: building the outbox")
	require.EqualValues(t, 1, metrics.closed.Load())
}

func TestOutboxesLogToTheLoggerOfTheApp(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	app := fx.New(fx.NopLogger, named("orders", newPool()), fx.Supply(newPool(), slog.New(slog.NewTextHandler(&log, nil))),
		outboxfx.NewModule(inMemory()), outboxfx.NewModule(outboxfx.Named("orders"), inMemory()))
	require.NoError(t, errors.Join(app.Err(), app.Start(t.Context()), app.Stop(t.Context())))
	require.Equal(t, 2, strings.Count(log.String(), "no listener is registered"), "by each outbox")
	require.Equal(t, 1, strings.Count(log.String(), "outbox=orders\n"))
}

func TestNoListenerIsAWarningWhereEventsAreDispatched(t *testing.T) {
	t.Parallel()
	for mode, warns := range map[outboxfx.Mode]bool{outboxfx.SingleNode: true, outboxfx.Ordered: true, outboxfx.WriterOnly: false} {
		var log bytes.Buffer
		app := fx.New(fx.NopLogger, fx.Supply(newPool()), fx.Replace(outboxfx.Config{Mode: mode}),
			outboxfx.NewModule(inMemory(), outboxfx.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		require.NoError(t, errors.Join(app.Err(), app.Start(t.Context()), app.Stop(t.Context())))
		require.Equal(t, warns, bytes.Contains(log.Bytes(), []byte("no listener is registered")), mode)
	}
}

package outboxfx_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestAnAppThatWritesDelivers(t *testing.T) {
	t.Parallel()
	db, box := openSQLite(t), newInbox()
	var (
		o    *outbox.Outbox
		w    *outbox.Writer
		dead *outbox.DeadLetters
	)
	started(t, fx.Supply(db), outboxfx.Module,
		outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")),
		fx.Populate(&o, &w, &dead))
	require.Same(t, o.Writer(), w)
	require.Same(t, o.DeadLetters(), dead)
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
}

func TestEveryDatabaseIsDetectedAndGivenItsTable(t *testing.T) {
	t.Parallel()
	for _, mode := range []outboxfx.Mode{outboxfx.SingleNode, outboxfx.MultiNode, outboxfx.Ordered} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
				box := newInbox()
				var w *outbox.Writer
				started(t, fx.Supply(db.DB), outboxfx.Module,
					fx.Supply(outboxfx.Config{
						Mode: mode, TableName: "shop_events", CreateSchema: true,
						Poller: outboxfx.PollerConfig{Interval: 20 * time.Millisecond}, Purge: outboxfx.PurgeConfig{Enabled: true},
					}),
					outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")), fx.Populate(&w))
				write(t, db.DB, w, placed("o-1"))
				box.awaits(t, "o-1")
				var rows int
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM shop_events").Scan(&rows))
				require.Equal(t, 1, rows)
			})
		})
	}
}

func TestNamedOutboxesHaveTheirOwnDatabaseAndShareAListener(t *testing.T) {
	t.Parallel()
	orders, stock, plain := openSQLite(t), openSQLite(t), openSQLite(t)
	shared, onlyStock := newInbox(), newInbox()
	type writers struct {
		fx.In
		Orders     *outbox.Writer `name:"orders"`
		Stock      *outbox.Writer `name:"stock"`
		Plain      *outbox.Writer
		OrdersDead *outbox.DeadLetters `name:"orders"`
		StockBox   *outbox.Outbox      `name:"stock"`
	}
	var w writers
	started(
		t, named("orders", orders), named("stock", stock), fx.Supply(plain),
		outboxfx.NewModule(outboxfx.Named("orders"), outboxfx.WithConfig(outboxfx.Config{Mode: outboxfx.MultiNode})),
		outboxfx.NewModule(outboxfx.Named("stock")), outboxfx.Module,
		outboxfx.AsListener(func() *inbox { return shared }, outboxfx.On("Order", "Placed"), outboxfx.For("orders", ""), outboxfx.For("stock")),
		outboxfx.AsListener(func() *inbox { return onlyStock }, outboxfx.On("", "Counted"), outboxfx.On("Item", "Gone"), outboxfx.For("stock")),
		fx.Invoke(func(in writers) { w = in }),
	)
	require.Same(t, w.StockBox.Writer(), w.Stock)
	write(t, orders, w.Orders, placed("o-1"))
	write(t, stock, w.Stock, placed("s-1"))
	write(t, plain, w.Plain, placed("p-1"))
	shared.awaits(t, "o-1", "s-1", "p-1")

	write(t, stock, w.Stock, outbox.Envelope{EventType: "Counted", AggregateID: "s-2", Payload: outbox.RawJSON("1")})
	write(t, stock, w.Stock, outbox.Envelope{EventType: "Gone", AggregateType: "Item", AggregateID: "s-3", Payload: outbox.RawJSON("1")})
	onlyStock.awaits(t, "s-2", "s-3")

	// The orders' outbox has no listener for it, so it dies there.
	write(t, orders, w.Orders, outbox.Envelope{EventType: "Counted", Payload: outbox.RawJSON("1")})
	require.Eventually(t, func() bool {
		n, err := w.OrdersDead.Count(context.Background(), outbox.DeadFilter{})
		return err == nil && n == 1
	}, 20*time.Second, 2*time.Millisecond)

	// Each writer refuses the other's transaction.
	err := outbox.InTx(t.Context(), adaptertest.Adapter(t, orders, w.Orders), func(ctx context.Context) error {
		_, err := w.Stock.Write(ctx, placed("x"))
		return err
	})
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
}

// shipping is a service that writes; its listener is one of the outbox that it
// writes to.
type shipping struct {
	db *sql.DB
	w  *outbox.Writer
}

func (s *shipping) OnEvent(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
	a, err := sqltx.New(s.db, s.w)
	if err != nil {
		return outbox.Done(), err
	}
	return outbox.Done(), outbox.InTx(ctx, a, func(ctx context.Context) error {
		_, err := s.w.Write(ctx, outbox.Envelope{EventType: "Shipped", AggregateType: "Order", AggregateID: env.AggregateID, Payload: outbox.RawJSON("1")})
		return err
	})
}

func TestAListenerMayDependOnAServiceThatWrites(t *testing.T) {
	t.Parallel()
	db, shipped := openSQLite(t), newInbox()
	var w *outbox.Writer
	started(t, fx.Supply(db), outboxfx.Module,
		fx.Provide(func(db *sql.DB, w *outbox.Writer) *shipping { return &shipping{db, w} }),
		outboxfx.AsListener(func(s *shipping) outbox.Listener { return s }, outboxfx.On("Order", "Placed")),
		outboxfx.AsListener(func() *inbox { return shipped }, outboxfx.On("Order", "Shipped")),
		fx.Populate(&w))
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
	topic := outbox.NewTopic[int]("Order", "Bound")
	db, box := openSQLite(t), newInbox()
	keep := func(ctx context.Context, _ int, env outbox.Envelope) error {
		_, err := box.OnEvent(ctx, env)
		return err
	}
	var w *outbox.Writer
	started(
		t, fx.Supply(db, box), outboxfx.Module, fx.Supply(fx.Annotate("mail", fx.ResultTags(`name:"subject"`))),
		outboxfx.AsListener(func(in listenerDeps) (*inbox, error) { return in.Box, nil }, outboxfx.On("Order", "Placed")),
		outboxfx.AsListener(func(b *inbox, _ ...int) outbox.ListenerFunc { return b.OnEvent }, outboxfx.On("Order", "Paid")),
		outboxfx.AsBinding(func(*inbox) outbox.Binding { return topic.Listen(keep) }),
		outboxfx.AsBinding(func() ([]outbox.Binding, error) {
			return []outbox.Binding{
				outbox.NewTopic[int]("Order", "One").Listen(keep), outbox.NewTopic[int]("", "Two").Listen(keep),
			}, nil
		}),
		fx.Populate(&w),
	)
	for _, event := range []outbox.EventType{"Placed", "Paid", "Bound", "One"} {
		write(t, db, w, outbox.Envelope{EventType: event, AggregateType: "Order", AggregateID: string(event), Payload: outbox.RawJSON("1")})
	}
	write(t, db, w, outbox.Envelope{EventType: "Two", AggregateID: "Two", Payload: outbox.RawJSON("1")})
	box.awaits(t, "Placed", "Paid", "Bound", "One", "Two")
}

func TestAListenerInAModuleUsesWhatIsPrivateThere(t *testing.T) {
	t.Parallel()
	db, box := openSQLite(t), newInbox()
	var w *outbox.Writer
	started(t, fx.Supply(db),
		fx.Module("mail",
			fx.Provide(func(*outbox.Writer) *inbox { return box }, fx.Private),
			outboxfx.AsListener(func(b *inbox) outbox.Listener { return b }, outboxfx.On("Order", "Placed"))),
		fx.Module("shop", outboxfx.Module), fx.Populate(&w))
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
}

func TestNoListenerIsAWarningWhereEventsAreDispatched(t *testing.T) {
	t.Parallel()
	for mode, warns := range map[outboxfx.Mode]bool{outboxfx.SingleNode: true, outboxfx.Ordered: true, outboxfx.WriterOnly: false} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			app := fx.New(fx.NopLogger, named("orders", openSQLite(t)), outboxfx.NewModule(
				outboxfx.Named("orders"), outboxfx.WithConfig(outboxfx.Config{Mode: mode}),
				outboxfx.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
			require.NoError(t, app.Err())
			require.NoError(t, app.Start(t.Context()))
			require.NoError(t, app.Stop(t.Context()))
			if warns {
				require.Contains(t, log.String(), "level=WARN msg=\"outbox: no listener is registered")
				require.Contains(t, log.String(), "outbox=orders")
			} else {
				require.Empty(t, log.String())
			}
		})
	}
}

package outboxfx_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// publisher keeps what it publishes, and notes when it is closed.
type publisher struct {
	inbox
	hold     chan struct{} // nil: publish at once
	holding  chan struct{}
	once     sync.Once
	closeErr error
}

func (p *publisher) Publish(_ context.Context, messages []relay.Message) []error {
	if p.hold != nil {
		p.once.Do(func() { close(p.holding) })
		<-p.hold
	}
	for _, m := range messages {
		p.note(m.Topic + " " + m.Key)
	}
	return nil
}

func (p *publisher) Ping(context.Context) error { return nil }

func (p *publisher) Close(context.Context) error {
	p.note("closed")
	return p.closeErr
}

var orderKind = outbox.EventKind{AggregateType: "Order", EventType: "Placed"}

func (p *publisher) config() relay.Config { return relay.Config{Publisher: p, Source: "/orders"} }

func TestARelayServesItsOutboxesAndIsClosedAfterThem(t *testing.T) {
	t.Parallel()
	orders, stock := newPool(), newPool()
	p := &publisher{hold: make(chan struct{}), holding: make(chan struct{})}
	var w struct {
		fx.In
		Orders *outbox.Writer `name:"orders"`
		Stock  *outbox.Writer `name:"stock"`
	}
	app := fxtest.New(
		t, fx.NopLogger, named("orders", orders), named("stock", stock),
		outboxfx.NewModule(outboxfx.Named("orders"), inMemory()), outboxfx.NewModule(outboxfx.Named("stock"), inMemory()),
		outboxfx.AsRelay(p.config, []relay.Route{relay.To("orders.placed", orderKind)}, outboxfx.For("orders", "stock")),
		fx.Populate(&w),
	)
	app.RequireStart()
	write(t, orders, w.Orders, placed("o-1"))
	write(t, stock, w.Stock, placed("s-1"))
	<-p.holding
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		app.RequireStop()
	}()
	require.Never(t, func() bool { return slices.Contains(p.notes(), "closed") }, 50*time.Millisecond, time.Millisecond, "it still publishes")
	close(p.hold)
	<-stopped
	notes := p.notes()
	require.Equal(t, "closed", notes[len(notes)-1])
	require.ElementsMatch(t, []string{"orders.placed o-1", "orders.placed s-1", "closed"}, notes)
}

// A relay with a name leaves the event to the other listeners, too.
func TestARelayBesideAListener(t *testing.T) {
	t.Parallel()
	db, box, p := newPool(), newInbox(), &publisher{}
	var w *outbox.Writer
	started(t, fx.Supply(db), fx.Populate(&w), outboxfx.NewModule(inMemory()), box.listens(outboxfx.As("mail")),
		outboxfx.AsRelay(func() (relay.Config, error) {
			cfg := p.config()
			cfg.Routes = []relay.Route{relay.To("orders.placed", orderKind)}
			return cfg, nil
		}, nil, outboxfx.As("relay")))
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
	p.awaits(t, "orders.placed o-1")
}

func TestARelayThatCannotBe(t *testing.T) {
	t.Parallel()
	module := func(opts ...fx.Option) error {
		return newError(append(opts, fx.Supply(newPool()), outboxfx.NewModule(inMemory()))...)
	}
	p := &publisher{closeErr: errors.New("cannot close")}
	err := module(outboxfx.AsRelay(p.config, []relay.Route{relay.To("", orderKind)}))
	require.ErrorContains(t, err, "outboxfx: the relay fxmodule_test.(*publisher).config-fm: outbox: relay.Config.Routes[0].Topic is empty")
	require.ErrorContains(t, err, "cannot close")
	require.Equal(t, []string{"closed"}, p.notes(), "its publisher is closed")

	err = module(outboxfx.AsRelay(func() (relay.Config, error) { return relay.Config{}, errSMTP }, nil))
	require.ErrorIs(t, err, errSMTP)
	require.ErrorContains(t, module(outboxfx.AsRelay(newPool, nil)), "outboxfx: AsRelay is given fxmodule_test.newPool, which returns a *sql.DB and not a relay.Config")
	require.ErrorContains(t, module(outboxfx.AsRelay(p.config, nil, outboxfx.On("Order", "Placed"))), "outboxfx: AsRelay takes no On")
	require.ErrorContains(t, module(outboxfx.AsRelay(p.config, nil, outboxfx.As("a"), outboxfx.As("b"))), "AsRelay takes one As")
	p = &publisher{}
	require.ErrorIs(t, module(outboxfx.AsRelay(p.config, []relay.Route{relay.To("a", orderKind)}), newInbox().listens()), outbox.ErrDuplicateListener)
	require.Equal(t, []string{"closed"}, p.notes(), "its publisher is closed")

	p = &publisher{}
	db := newPool()
	require.ErrorContains(t, newError(
		named("a", db), named("b", db), outboxfx.NewModule(outboxfx.Named("a"), inMemory()), outboxfx.NewModule(outboxfx.Named("b"), inMemory()),
		outboxfx.AsRelay(p.config, []relay.Route{relay.To("a", orderKind)}, outboxfx.For("a", "b")),
	), "deliver from one table")
	require.Equal(t, []string{"closed"}, p.notes(), "its publisher is closed")

	m := &relayMetrics{}
	require.Error(t, module(outboxfx.AsRelay(func() relay.Config { return relay.Config{Metrics: m} }, nil)))
	require.True(t, m.closed)
}

// relayMetrics notes when they are closed.
type relayMetrics struct {
	relay.NopMetrics
	closed bool
}

func (m *relayMetrics) Close() error {
	m.closed = true
	return nil
}

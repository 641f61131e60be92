package outboxfx_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

func (i *inbox) noteAll(_ context.Context, batch []outbox.Envelope) ([]error, error) {
	for _, env := range batch {
		i.note(env.AggregateID)
	}
	return nil, nil
}

// A batch listener comes by the same options as any other, also for two outboxes.
func TestBatchListenersAreProvidedAsOthersAre(t *testing.T) {
	t.Parallel()
	orders, stock := newPool(), newPool()
	box := newInbox()
	counted := outbox.NewTopic[int]("", "Counted")
	var w struct {
		fx.In
		Orders *outbox.Writer `name:"orders"`
		Stock  *outbox.Writer `name:"stock"`
	}
	started(
		t, named("orders", orders), named("stock", stock),
		outboxfx.NewModule(outboxfx.Named("orders"), inMemory()), outboxfx.NewModule(outboxfx.Named("stock"), inMemory()),
		outboxfx.AsListener(func() outbox.Listener {
			return outbox.BatchListener(outbox.BatchOptions{Size: 2, Wait: time.Hour}, box.noteAll)
		}, outboxfx.On("Order", "Placed"), outboxfx.On("Order", "Paid"), outboxfx.For("orders", "stock")),
		outboxfx.AsBinding(func() outbox.Binding {
			return counted.ListenBatch(outbox.BatchOptions{Size: 2, Wait: time.Hour}, func(_ context.Context, batch []outbox.Event[int]) ([]error, error) {
				for _, e := range batch {
					box.note(e.Envelope.AggregateID)
				}
				return nil, nil
			})
		}, outboxfx.For("orders")),
		fx.Populate(&w),
	)
	paid := placed("o-2")
	paid.EventType = "Paid"
	write(t, orders, w.Orders, placed("o-1"))
	write(t, orders, w.Orders, paid)
	write(t, stock, w.Stock, placed("s-1"))
	write(t, stock, w.Stock, placed("s-2"))
	write(t, orders, w.Orders, counted.Envelope("c-1", 1))
	write(t, orders, w.Orders, counted.Envelope("c-2", 2))
	box.awaits(t, "o-1", "o-2", "s-1", "s-2", "c-1", "c-2")
}

func TestABadBatchListenerIsAnErrorOfTheApp(t *testing.T) {
	t.Parallel()
	err := newError(fx.Supply(newPool()), outboxfx.NewModule(inMemory()), outboxfx.AsListener(func() outbox.Listener {
		return outbox.BatchListener(outbox.BatchOptions{}, newInbox().noteAll)
	}, outboxfx.On("Order", "Placed")))
	require.ErrorContains(t, err, "outbox: the batch listener of Order/Placed: outbox: BatchOptions.Size is 0; it must be between 1 and 10000")
}

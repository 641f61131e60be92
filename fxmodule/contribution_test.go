package outboxfx_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// anyListener is a registry of the user's own kind.
type anyListener struct{ box *inbox }

func (r anyListener) ListenerFor(outbox.AggregateType, outbox.EventType) (outbox.Listener, bool) {
	return r.box, true
}

func TestARegistryOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	db, box := newPool(), newInbox()
	var w *outbox.Writer
	started(t, fx.Supply(db), fx.Populate(&w), outboxfx.NewModule(inMemory(), outboxfx.WithRegistry(anyListener{box})))
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")

	err := newError(fx.Supply(db), outboxfx.NewModule(inMemory(), outboxfx.WithRegistry(anyListener{box})), box.listens())
	require.ErrorContains(t, err, "outbox: Config.Registry is not an *outbox.Registry")

	filled := outbox.NewRegistry()
	require.NoError(t, filled.Register(outbox.On("Order", "Placed", box)))
	err = newError(fx.Supply(db), outboxfx.NewModule(inMemory(), outboxfx.WithRegistry(filled)), box.listens())
	require.ErrorIs(t, err, outbox.ErrDuplicateListener)
	require.ErrorContains(t, err, "WithRegistry and the listener")
}

func noteDelivery(to *inbox, name string) outbox.Interceptor {
	return outbox.Before(func(context.Context, outbox.Envelope) error { to.note(name); return nil })
}

func noteWrite(to *inbox, name string) outbox.WriterHook {
	return outbox.WriterHook{AfterWrite: func(context.Context, []outbox.Envelope) { to.note(name) }}
}

func TestInterceptorsAndHooksRunInTheOrderOfTheOptions(t *testing.T) {
	t.Parallel()
	db, box, d := newPool(), newInbox(), newInbox()
	var w *outbox.Writer
	opts := []fx.Option{
		named("orders", db), fx.Supply(newPool()), outboxfx.NewModule(inMemory()), box.listens(outboxfx.For("orders")),
		outboxfx.NewModule(outboxfx.Named("orders"), inMemory(),
			outboxfx.WithTracing(noteWrite(d, "traced write"), noteDelivery(d, "traced delivery")),
			outboxfx.WithHooks(noteWrite(d, "given hook")), outboxfx.WithInterceptors(noteDelivery(d, "given interceptor"))),
		outboxfx.AsHook(func() outbox.WriterHook { return noteWrite(d, "hook of another outbox") }),
		fx.Populate(fx.Annotate(&w, fx.ParamTags(`name:"orders"`))),
	}
	hooks, interceptors := []string{"given hook"}, []string{"traced delivery", "given interceptor"}
	for i := range 10 { // the order of a value group is random
		hook, interceptor := fmt.Sprintf("hook %d", i), fmt.Sprintf("interceptor %d", i)
		hooks, interceptors = append(hooks, hook), append(interceptors, interceptor)
		opts = append(opts,
			outboxfx.AsHook(func() (outbox.WriterHook, error) { return noteWrite(d, hook), nil }, outboxfx.For("orders")),
			outboxfx.AsInterceptor(func() outbox.Interceptor { return noteDelivery(d, interceptor) }, outboxfx.For("orders", "")))
	}
	started(t, opts...)
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
	require.Equal(t, append(append(hooks, "traced write"), interceptors...), d.notes())
}

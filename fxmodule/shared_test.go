package outboxfx_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestAllOutboxesOfAnAppShareItsWorkers(t *testing.T) {
	t.Parallel()
	a, b := newPool(), newPool()
	var running, most, calls atomic.Int64
	listener := outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(time.Millisecond)
		running.Add(-1)
		calls.Add(1)
		return nil
	})
	var w struct {
		fx.In
		A *outbox.Writer `name:"a"`
		B *outbox.Writer `name:"b"`
	}
	started(
		t, named("a", a), named("b", b), fx.Supply(outbox.NewSharedWorkers(1)),
		outboxfx.NewModule(outboxfx.Named("a"), inMemory()),
		outboxfx.NewModule(outboxfx.Named("b"), inMemory(), outboxfx.WithConfig(outboxfx.Config{Mode: outboxfx.MultiNode, Dispatch: outboxfx.DispatchConfig{Workers: 4}})),
		outboxfx.AsListener(func() outbox.Listener { return listener }, outboxfx.On("Order", "Placed"), outboxfx.For("a", "b")),
		fx.Populate(&w),
	)
	for i := range 20 {
		write(t, a, w.A, placed(fmt.Sprint("a", i)))
		write(t, b, w.B, placed(fmt.Sprint("b", i)))
	}
	require.Eventually(t, func() bool { return calls.Load() == 40 }, 20*time.Second, time.Millisecond)
	require.EqualValues(t, 1, most.Load())
}

func TestSharedWorkersThatAreWrongAreAnErrorOfTheApp(t *testing.T) {
	t.Parallel()
	app := fx.New(
		fx.NopLogger, fx.Supply(newPool(), outbox.NewSharedWorkers(-1)), outboxfx.NewModule(inMemory()),
	)
	require.ErrorContains(t, app.Err(), "Config.Mode.Dispatch.SharedWorkers are -1")
}

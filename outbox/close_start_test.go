package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Close does not wait for a Start that waits for the database: Start fails, and holds
// nothing.
func TestCloseEndsAStartThatIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, mode := range boundedModes() {
		for _, ignores := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, driver ignores contexts: %t", name, ignores), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := &mute{Store: outboxtest.NewStore(), ignores: ignores, free: make(chan struct{})}
					store.begun.Store(true)
					e := build(t, outbox.Config{Store: store, Mode: mode}, handled)
					started, began := make(chan error, 1), time.Now()
					go func() { started <- e.Start(context.Background()) }()
					synctest.Wait()
					require.NoError(t, e.Close(context.Background()))
					require.Zero(t, time.Since(began))
					if ignores {
						synctest.Wait()
						require.Empty(t, started)
						store.begun.Store(false)
						close(store.free)
					}
					require.ErrorIs(t, <-started, outbox.ErrClosed)
					require.Zero(t, time.Since(began))

					// Another process delivers at once.
					other := start(t, outbox.Config{Store: store.Store, Mode: mode}, handled)
					defer func() { require.NoError(t, other.Close(context.Background())) }()
					if _, writes := mode.(outbox.WriterOnly); writes {
						return
					}
					other.write(said("next"))
					other.Wake()
					time.Sleep(time.Millisecond)
					other.await("next", outbox.StatusDone)
					require.Less(t, time.Since(began), time.Second)
				})
			})
		}
	}
}

// Any number of callers close at once, whatever their contexts: they get the same answer.
func TestCloseTogether(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	entered, free := make(chan struct{}), make(chan struct{})
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: 20 * time.Millisecond}}},
		func(context.Context, outbox.Envelope) error {
			close(entered)
			<-free
			return nil
		})
	e.write(said("stubborn"))
	<-entered
	answers := make(chan error, 10)
	for i := range 10 {
		ctx := context.Background()
		if i%2 == 0 {
			ctx = ended
		}
		go func() { answers <- e.Close(ctx) }()
	}
	first := <-answers
	require.ErrorContains(t, first, "listeners still run")
	for range 9 {
		require.Equal(t, first, <-answers)
	}
	close(free)
}

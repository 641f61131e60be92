package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// slowPaused is a store that reads the pauses slowly.
type slowPaused struct {
	*outboxtest.Store
	d atomic.Int64 // how slowly
}

func (s *slowPaused) memory() *outboxtest.Store { return s.Store }
func (s *slowPaused) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	time.Sleep(time.Duration(s.d.Load()))
	return s.Store.Paused(ctx, db)
}

// A standby that becomes the holder keeps to a pause that began while it waited.
func TestAStandbyKnowsThePause(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single": outbox.SingleNode{}, "ordered": outbox.Ordered{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &slowPaused{Store: outboxtest.NewStore()}
				a := start(t, outbox.Config{Store: store, Mode: mode}, handled)
				time.Sleep(time.Second)
				var got arrivals
				b := start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error { got.add(env.EventID); return nil })
				time.Sleep(time.Second)
				require.NoError(t, a.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
				time.Sleep(time.Minute)
				store.d.Store(int64(50 * time.Millisecond))
				go func() { _ = a.Close(context.Background()) }() // b holds the table from then on
				for i := range 3000 {
					b.write(said(fmt.Sprint("e", i)))
					time.Sleep(time.Millisecond)
				}
				require.Empty(t, got.all())
				require.NoError(t, b.Resume(t.Context(), kindSaid))
				pass(time.Minute)
				require.Len(t, got.all(), 3000)
				require.NoError(t, b.Close(context.Background()))
			})
		})
	}
}

package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A process dies in a Drain, with events in hand. The Drains of another process leave these events
// alone while the other process may be alive, and deliver them afterwards, three in a Drain.
func TestADrainTakesOverTheEventsOfAProcessThatDied(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		way := &cut{Store: outboxtest.NewStore()}
		var began atomic.Int64
		dying := build(t, outbox.Config{Store: way, Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
			began.Add(1)
			<-ctx.Done()
			return nil
		})
		dying.write(numbered("a", 10)...)
		dying.write(numbered("b", 10)...)
		dying.write(numbered("c", 10)...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := dying.Drain(ctx, 100)
			ended <- err
		}()
		synctest.Wait()
		require.Positive(t, began.Load())
		way.away.Store(true)

		var c calls
		next := build(t, outbox.Config{Store: way.Store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		early := next.drain(100)
		require.Zero(t, early.Done+early.Failed+early.Dead)
		require.Equal(t, []int{30, 30}, []int{early.Left, early.Elsewhere})
		time.Sleep(6 * time.Minute) // longer than a lease

		drains := 0
		for left := 30; left > 0; drains++ {
			got := next.drain(3)
			require.LessOrEqual(t, got.Done, 3)
			require.Equal(t, left-got.Done, got.Left)
			left = got.Left
			now := next.ranges().Now
			for _, r := range rangesOf(t, way.Store) {
				require.True(t, r.Until.Before(now), "a range that lasts: %v", r)
			}
			require.Less(t, drains, 30)
		}
		events, deliveries := c.total()
		require.Equal(t, []int{30, 30}, []int{events, deliveries})
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 30}, statuses(way.Store))
		require.Equal(t, outbox.Drained{}, next.drain(3))
		require.Empty(t, rangesOf(t, way.Store))
		cancel()
		require.ErrorContains(t, <-ended, "outbox: draining: ")
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 30}, statuses(way.Store))
		require.LessOrEqual(t, drains, 12, "a Drain delivers three events, or as many as may be taken over")
	})
}

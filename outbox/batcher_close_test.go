package outbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestCloseDeliversWhatWaitsForItsBatchAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s sizes
		e := startBatches(t, outbox.Config{Mode: outbox.MultiNode{}}, outbox.BatchOptions{Size: 100, Wait: time.Hour}, s.listen)
		e.write(saidAll(named("e", 30)...)...)
		time.Sleep(time.Minute)
		require.Zero(t, s.events())
		began := time.Now()
		require.NoError(t, e.Close(context.Background()))
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.Equal(t, []int{30}, s.calls)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 30}, statuses(e.store))
	})
}

// A call that ends only with its context is cut off by the shutdown; so is what waits
// behind it. Nothing of that is a failed attempt, and all leases are given back.
func TestCloseGivesBackTheEventsOfACallThatItCutOff(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				var entered atomic.Int32
				e := startBatches(t, outbox.Config{Mode: mode, Interceptors: []outbox.Interceptor{
					outbox.Before(func(context.Context, outbox.Envelope) error { entered.Add(1); return nil }),
				}}, outbox.BatchOptions{Size: 10}, func(ctx context.Context, _ []outbox.Envelope) ([]error, error) {
					calls++
					<-ctx.Done()
					return nil, ctx.Err()
				})
				for _, id := range named("e", 100) {
					e.write(said(id))
				}
				time.Sleep(time.Second)
				began := time.Now()
				require.NoError(t, e.Close(context.Background()))
				require.Less(t, time.Since(began), outbox.DefaultDrainTimeout+time.Second)
				require.Equal(t, 1, calls)
				require.EqualValues(t, 20, entered.Load(), "a batch under way, and one that gathers")
				for _, row := range e.store.Rows() {
					require.Equal(t, outbox.StatusNew, row.Status)
					require.Zero(t, row.Attempts)
					require.Empty(t, row.LockedBy)
				}
			})
		})
	}
}

// A process whose hold lapsed while a batch gathered does not deliver it: another
// process may have.
func TestABatchIsNotDeliveredAfterTheHoldLapsed(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{15 * time.Second, 25 * time.Second} { // before and after the call is due
		t.Run(back.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &unheld{Store: outboxtest.NewStore()}
				var at []time.Duration
				var began time.Time
				e := startBatches(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}}, outbox.BatchOptions{Size: 5, Wait: 20 * time.Second},
					func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
						at = append(at, time.Since(began).Round(time.Second))
						require.Len(t, batch, 3)
						return nil, nil
					})
				began = time.Now()
				e.write(saidAll("a", "b", "c")...)
				synctest.Wait()
				store.away.Store(true)
				time.Sleep(back)
				store.away.Store(false)
				time.Sleep(10 * time.Minute)
				require.NoError(t, e.Close(context.Background()))
				require.Len(t, at, 1)
				require.GreaterOrEqual(t, at[0], 35*time.Second, "read again, and waited for again")
				require.LessOrEqual(t, at[0], 50*time.Second, "at once")
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 3}, statuses(store.Store))
				row, _ := store.Row("a")
				require.Zero(t, row.Attempts)
			})
		})
	}
}

// An event that comes to its batch after the shutdown has cut off the calls is in none.
func TestNoCallBeginsAfterTheShutdownCutThemOff(t *testing.T) {
	t.Parallel()
	for range 20 { // for what only happens now and then
		synctest.Test(t, func(t *testing.T) {
			e := startBatches(t, outbox.Config{Interceptors: []outbox.Interceptor{outbox.Before(func(ctx context.Context, _ outbox.Envelope) error {
				<-ctx.Done()
				return nil
			})}}, outbox.BatchOptions{Size: 1}, func(context.Context, []outbox.Envelope) ([]error, error) {
				t.Error("called")
				return nil, nil
			})
			e.write(saidAll("a", "b", "c")...)
			synctest.Wait()
			require.NoError(t, e.Close(context.Background()))
			require.Equal(t, map[outbox.Status]int{outbox.StatusNew: 3}, statuses(e.store))
		})
	}
}

// A call that ignores its context keeps its own events. Those behind it are released at
// once, not when the leases expire.
func TestAStubbornBatchDoesNotKeepTheOthersLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		defer release()
		e := startBatches(t, outbox.Config{Mode: outbox.MultiNode{}}, outbox.BatchOptions{Size: 2}, func(context.Context, []outbox.Envelope) ([]error, error) {
			<-gate
			return nil, nil
		})
		e.write(said("stubborn"))
		synctest.Wait()
		e.write(saidAll(named("e", 30)...)...)
		closed := make(chan error, 1)
		go func() { closed <- e.Close(context.Background()) }()
		time.Sleep(outbox.DefaultDrainTimeout + time.Second)
		for _, row := range e.store.Rows() {
			require.Equal(t, row.Envelope.EventID == "stubborn", row.LockedBy != "", row.Envelope.EventID)
		}
		require.ErrorContains(t, <-closed, "listeners still run")
	})
}

package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// While a call does not end, more of its events come than the process takes in hand.
// Other topics' events are delivered, and memory is bounded.
func TestASlowBatchHoldsUpNoOtherTopic(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(outbox.DispatchOptions) outbox.Mode{
		"single node": func(o outbox.DispatchOptions) outbox.Mode { return outbox.SingleNode{Dispatch: o} },
		"many nodes":  func(o outbox.DispatchOptions) outbox.Mode { return outbox.MultiNode{Dispatch: o} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const size, cold, n = 10, 20, 1000
				gate := make(chan struct{})
				release := sync.OnceFunc(func() { close(gate) })
				defer release()
				var others, under, most atomic.Int32
				var s sizes
				e := build(t, outbox.Config{
					Mode: mode(outbox.DispatchOptions{Workers: 2, ColdCapacity: cold}),
					Interceptors: []outbox.Interceptor{
						outbox.Before(func(context.Context, outbox.Envelope) error {
							most.Store(max(under.Add(1), most.Load()))
							return nil
						}),
						outbox.After(func(context.Context, outbox.Envelope, error) { under.Add(-1) }),
					},
				}, nil)
				require.NoError(t, e.Register(
					outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: size, Wait: time.Second},
						func(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
							<-gate
							return s.listen(ctx, batch)
						})),
					outbox.On("", "Other", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
						others.Add(1)
						return nil
					})),
				))
				require.NoError(t, e.Start(t.Context()))
				for i := range n {
					e.write(said(fmt.Sprintf("e%04d", i)), outbox.Envelope{EventType: "Other", Payload: outbox.JSON(1)})
					synctest.Wait() // the hot queue is empty again
				}
				time.Sleep(20 * time.Second)
				require.EqualValues(t, n, others.Load())
				require.LessOrEqual(t, most.Load(), int32(2*size+2), "deliveries under way")
				stats, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.LessOrEqual(t, stats.ColdDepth, cold)
				require.Equal(t, map[outbox.Status]int{outbox.StatusNew: n, outbox.StatusDone: n}, statuses(e.store))

				release()
				time.Sleep(time.Minute)
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 2 * n}, statuses(e.store))
				require.Equal(t, n, s.events(), "each event once")
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

// The hot queue and the cold one count what waits for a batch.
func TestMemoryIsBoundedWhileABatchIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const hot, cold, n = 50, 20, 1000
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		defer release()
		var s sizes
		e := startBatches(t, outbox.Config{Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{HotCapacity: hot, ColdCapacity: cold}, Poll: outbox.PollOptions{Interval: time.Hour},
		}},
			outbox.BatchOptions{Size: 10}, func(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
				<-gate
				return s.listen(ctx, batch)
			})
		for _, id := range named("e", n) {
			e.write(said(id))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		stats, err := e.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, hot, stats.HotDepth)
		require.LessOrEqual(t, stats.ColdDepth, cold)
		leased := 0
		for _, row := range e.store.Rows() {
			if row.LockedBy != "" {
				leased++
			}
		}
		require.Equal(t, 20+hot, leased, "the rows of the cold queue have no leases")
		release()
		time.Sleep(time.Minute)
		require.Equal(t, n, s.events())
		require.NoError(t, e.Close(context.Background()))
	})
}

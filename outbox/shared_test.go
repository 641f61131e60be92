package outbox_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// multiNode has small queues, so that most of a backlog stays in the table.
func multiNode(shared *outbox.SharedWorkers) outbox.MultiNode {
	return outbox.MultiNode{Dispatch: outbox.DispatchOptions{SharedWorkers: shared, HotCapacity: 50, ColdCapacity: 50}}
}

func TestSharedWorkersBoundTheListenersOfAllShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := outbox.NewSharedWorkers(4)
		own := outbox.DispatchOptions{SharedWorkers: shared}
		var running, most, calls atomic.Int64
		began := time.Now()
		var ended atomic.Pointer[time.Time]
		var shards []*engine
		for _, mode := range []outbox.Mode{outbox.SingleNode{Dispatch: own}, multiNode(shared), outbox.OrderedByKey{Dispatch: own}, multiNode(shared)} {
			shards = append(shards, start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
				n := running.Add(1)
				for m := most.Load(); n > m; m = most.Load() {
					most.CompareAndSwap(m, n)
				}
				time.Sleep(10 * time.Millisecond)
				running.Add(-1)
				calls.Add(1)
				now := time.Now()
				ended.Store(&now)
				return nil
			}))
		}
		for i, e := range shards {
			for j := range 100 {
				env := said(fmt.Sprintf("%d-%03d", i, j))
				env.AggregateID = fmt.Sprint(j)
				e.write(env)
			}
		}
		pass(time.Minute)
		require.EqualValues(t, 400, calls.Load())
		require.EqualValues(t, 4, most.Load())
		require.Less(t, ended.Load().Sub(began), 1200*time.Millisecond, "400 deliveries of 10 ms by four workers take a second")
	})
}

// One shard has a backlog of slow deliveries, another one an event now and then.
func TestABacklogDoesNotStarveAnotherShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := outbox.NewSharedWorkers(4)
		var floods atomic.Int64
		flood := start(t, outbox.Config{Mode: multiNode(shared)}, func(context.Context, outbox.Envelope) error {
			time.Sleep(time.Second)
			floods.Add(1)
			return nil
		})
		var latest atomic.Int64
		var calls atomic.Int64
		calm := start(t, outbox.Config{Mode: multiNode(shared)}, func(_ context.Context, env outbox.Envelope) error {
			latest.Store(max(latest.Load(), int64(time.Since(env.OccurredAt))))
			calls.Add(1)
			return nil
		})
		several(flood, 400, "f", "Said")
		for i := range 20 {
			pass(3300 * time.Millisecond)
			calm.write(said(fmt.Sprint("c", i)))
		}
		pass(2 * time.Second)
		require.EqualValues(t, 20, calls.Load())
		require.LessOrEqual(t, time.Duration(latest.Load()), time.Second, "an event waits for one round of the flood")
		require.Less(t, floods.Load(), int64(300), "the flood went on all the time")
		pass(2 * time.Minute)
		require.EqualValues(t, 400, floods.Load())
	})
}

func TestShardsWithBacklogsGetEqualParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := outbox.NewSharedWorkers(4)
		counts := make([]atomic.Int64, 4)
		for i := range counts {
			e := start(t, outbox.Config{Mode: multiNode(shared)}, func(context.Context, outbox.Envelope) error {
				time.Sleep(time.Second)
				counts[i].Add(1)
				return nil
			})
			several(e, 200, "e", "Said")
			pass(time.Second) // the first has a head start
		}
		pass(100 * time.Second)
		for i := range counts {
			require.InDelta(t, 103, counts[i].Load(), 12, "shard %d", i) // 4 in each of 103 seconds
		}
	})
}

// All shared workers are held for ten minutes. Meanwhile the lease of an event that
// waits is renewed, its ListenerTimeout does not run, and another node that could take
// it over does not get it.
func TestAnEventThatWaitsForASharedWorkerCountsAsQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := outbox.NewSharedWorkers(1)
		busy := start(t, outbox.Config{Mode: multiNode(shared)}, func(context.Context, outbox.Envelope) error {
			time.Sleep(10 * time.Minute)
			return nil
		})
		store := outboxtest.NewStore()
		mode := multiNode(shared)
		mode.Claim.LeaseDuration, mode.Dispatch.ListenerTimeout, mode.Dispatch.Workers = 15*time.Second, time.Second, 3
		var got calls
		listener := func(ctx context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			deadline, _ := ctx.Deadline()
			assert.Equal(t, time.Second, time.Until(deadline))
			return nil
		}
		busy.write(said("busy"))
		pass(time.Second)
		e := start(t, outbox.Config{Store: store, Mode: mode}, listener)
		mode.Dispatch.SharedWorkers = nil
		start(t, outbox.Config{Store: store, Mode: mode}, listener)
		several(e, 10, "e", "Said")
		pass(5 * time.Minute)
		events, _ := got.total()
		require.Zero(t, events)
		pass(10 * time.Minute)
		events, deliveries := got.total()
		require.Equal(t, []int{10, 10}, []int{events, deliveries})
		for _, row := range store.Rows() {
			require.Equal(t, outbox.StatusDone, row.Status)
			require.Zero(t, row.Attempts)
		}
	})
}

func TestAShardClosesWhileAnotherOneHoldsAllSharedWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := outbox.NewSharedWorkers(1)
		goOn := make(chan struct{})
		hangs := start(t, outbox.Config{Mode: multiNode(shared)}, func(context.Context, outbox.Envelope) error {
			<-goOn
			return nil
		})
		hanging := hangs.write(said("hanging"), said("next"))
		pass(time.Second)
		idle, waiting := start(t, outbox.Config{Mode: multiNode(shared)}, handled), start(t, outbox.Config{Mode: multiNode(shared)}, handled)
		several(waiting, 20, "w", "Said")
		pass(time.Second)
		for e, want := range map[*engine]time.Duration{idle: 0, waiting: outbox.DefaultDrainTimeout} {
			began := time.Now()
			require.NoError(t, e.Close(context.Background()))
			require.InDelta(t, want, time.Since(began), float64(50*time.Millisecond))
		}
		for _, row := range waiting.store.Rows() {
			require.Equal(t, outbox.StatusNew, row.Status)
			require.Empty(t, row.LockedBy, "another node may have it at once")
			require.Zero(t, row.Attempts)
		}
		close(goOn)
		pass(time.Second)
		for _, id := range hanging {
			hangs.await(id, outbox.StatusDone)
		}
	})
}

// A listener that panics or ends its goroutine, and a pause, give the worker back.
func TestSharedWorkersAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := outbox.NewSharedWorkers(1)
		goOn := make(chan struct{})
		var got calls
		e := start(t, outbox.Config{Mode: multiNode(shared)}, func(_ context.Context, env outbox.Envelope) error {
			switch n := got.add(env.EventID); {
			case env.EventID == "waits":
				<-goOn
			case env.EventID == "panics" && n == 1:
				panic("once")
			case env.EventID == "ends" && n == 1:
				runtime.Goexit()
			}
			return nil
		})
		other := start(t, outbox.Config{Mode: multiNode(shared)}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			return nil
		})
		e.write(said("panics"), said("ends"))
		pass(time.Minute)
		e.await("panics", outbox.StatusDone)
		e.await("ends", outbox.StatusDone)

		e.write(said("waits"))
		pass(time.Second)
		other.write(said("paused")) // a worker of the other outbox waits with it
		pass(time.Second)
		require.NoError(t, other.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
		close(goOn)
		pass(time.Minute)
		require.Zero(t, got.n["paused"])
		require.NoError(t, other.Resume(t.Context(), kindSaid))
		pass(time.Minute)
		other.await("paused", outbox.StatusDone)
		e.write(said("after"))
		pass(time.Minute)
		e.await("after", outbox.StatusDone)
	})
}

// A run of many events of one key does not keep a shared worker to its end.
func TestARunOfAKeySharesItsWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := outbox.NewSharedWorkers(1)
		var order []string // one listener runs at a time
		listener := func(_ context.Context, env outbox.Envelope) error {
			time.Sleep(time.Second)
			order = append(order, env.EventID)
			return nil
		}
		byKey := start(t, outbox.Config{Mode: outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{SharedWorkers: shared}}}, listener)
		other := start(t, outbox.Config{Mode: multiNode(shared)}, listener)
		var run []outbox.Envelope
		for i := range 5 {
			env := said(fmt.Sprint("run", i))
			env.AggregateID = "a"
			run = append(run, env)
		}
		byKey.write(run...)
		pass(500 * time.Millisecond)
		other.write(said("other"))
		pass(time.Minute)
		require.Equal(t, []string{"run0", "other", "run1", "run2", "run3", "run4"}, order)
	})
}

// Limits and batch listeners have bounds of their own.
func TestALimitedKindNeedsNoSharedWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mode := multiNode(outbox.NewSharedWorkers(1))
		mode.Dispatch.Workers = 2 // one to pass on what is for a batch
		mode.Dispatch.Rules = map[outbox.EventKind]outbox.Rules{{EventType: "Limited"}: {Concurrency: 1}}
		goOn := make(chan struct{})
		e := build(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
			<-goOn
			return nil
		})
		require.NoError(t, e.Register(
			outbox.On("", "Limited", outbox.ListenerFunc(handled)),
			outbox.On("", "Batched", outbox.BatchListener(outbox.BatchOptions{Size: 10}, func(context.Context, []outbox.Envelope) ([]error, error) { return nil, nil })),
		))
		require.NoError(t, e.Start(t.Context()))
		e.write(said("hangs"))
		pass(time.Second)
		for _, id := range append(several(e, 5, "l", "Limited"), several(e, 5, "b", "Batched")...) {
			pass(time.Second)
			e.await(id, outbox.StatusDone)
		}
		close(goOn)
		pass(time.Second)
	})
}

func TestSharedWorkersThatAreWrongAreNamed(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	for _, shared := range []*outbox.SharedWorkers{{}, outbox.NewSharedWorkers(0), outbox.NewSharedWorkers(-1), outbox.NewSharedWorkers(10_000 + 1)} {
		_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: multiNode(shared)})
		require.ErrorContains(t, err, "Config.Mode.Dispatch.SharedWorkers are ")
		require.ErrorContains(t, err, "make them with outbox.NewSharedWorkers(n), where n is 1 to 10000")
	}
}

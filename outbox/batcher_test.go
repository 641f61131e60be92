package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// sizes records how many events each call got.
type sizes struct {
	mu    sync.Mutex
	calls []int
	all   int
}

func (s *sizes) listen(_ context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, len(batch))
	s.all += len(batch)
	return nil, nil
}

func (s *sizes) events() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Batches are full while events are due, although there are few workers: from the
// table, from the hot queue, and from both.
func TestBatchesAreFullWhileEventsAreDue(t *testing.T) {
	t.Parallel()
	const n, size = 10_000, 100
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		for _, hot := range []int{0, n / 2, n} {
			t.Run(fmt.Sprintf("%s/%d on the hot path", name, hot), func(t *testing.T) {
				t.Parallel()
				store := outboxtest.NewStore()
				writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
				if hot < n {
					writer.write(saidAll(named("cold", n-hot)...)...)
				}
				var s sizes
				e := startBatches(t, outbox.Config{Store: store, Mode: mode}, outbox.BatchOptions{Size: size, Wait: 10 * time.Minute}, s.listen)
				for i := 0; i < hot; i += 250 {
					e.write(saidAll(named(fmt.Sprintf("hot%d-", i), 250)...)...)
				}
				require.Eventually(t, func() bool { return s.events() >= n }, time.Minute, time.Millisecond)
				require.NoError(t, e.Close(t.Context()))
				require.Equal(t, n, s.events(), "each event once")
				require.LessOrEqual(t, len(s.calls), 110)
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: n}, statuses(store))
			})
		}
	}
}

// No event waits longer than Wait and 50 ms while calls may begin: written now, delayed,
// or retried.
func TestNoEventWaitsLongerThanWaitForItsBatch(t *testing.T) {
	t.Parallel()
	const wait, limit = 200 * time.Millisecond, 250 * time.Millisecond
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				longest, calls, events := time.Duration(0), 0, 0
				e := startBatches(t, outbox.Config{Mode: mode}, outbox.BatchOptions{Size: 7, Wait: wait, Concurrency: 4},
					func(_ context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
						mu.Lock()
						calls++
						results := make([]outbox.Result, len(batch))
						for i, env := range batch {
							longest = max(longest, time.Since(env.AvailableAt))
							if events++; env.EventID[0] == 'r' && env.Attempts == 0 {
								results[i] = outbox.ResultOf(errors.New("once more"))
							}
						}
						mu.Unlock()
						time.Sleep(10 * time.Millisecond)
						return results, nil
					})
				const n = 600
				for i := range n {
					env := said(fmt.Sprint([]string{"e", "r"}[i%2], i))
					if i%5 == 0 {
						env.DeliverAfter = time.Duration(1+rand.IntN(2000)) * time.Millisecond
					}
					e.write(env)
					time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				}
				time.Sleep(10 * time.Second)
				require.NoError(t, e.Close(context.Background()))
				require.Equal(t, n+n/2, events)
				require.LessOrEqual(t, longest, limit)
				require.Greater(t, longest, 3*wait/4, "some waited")
				require.Less(t, calls, events/2, "and were together")
			})
		})
	}
}

// The first event of an idle listener without Wait is called at once; what comes during
// a call is the next batch.
func TestWithoutWaitABatchIsWhatCameDuringTheCallBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []int
		e := startBatches(t, outbox.Config{}, outbox.BatchOptions{Size: 100}, func(_ context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
			got = append(got, len(batch))
			time.Sleep(time.Second)
			return nil, nil
		})
		e.write(said("first"))
		synctest.Wait()
		require.Equal(t, []int{1}, got)
		e.write(saidAll(named("e", 120)...)...)
		time.Sleep(5 * time.Second)
		require.ElementsMatch(t, []int{1, 100, 20}, got)
		require.NoError(t, e.Close(context.Background()))
	})
}

func TestAsManyCallsRunAtOnceAsConcurrencySays(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var running, most atomic.Int32
				e := startBatches(t, outbox.Config{Store: written(t, named("e", 200)...)}, outbox.BatchOptions{Size: 10, Wait: time.Second, Concurrency: concurrency},
					func(context.Context, []outbox.Envelope) ([]outbox.Result, error) {
						most.Store(max(running.Add(1), most.Load()))
						time.Sleep(time.Second)
						running.Add(-1)
						return nil, nil
					})
				time.Sleep(time.Minute)
				require.EqualValues(t, max(concurrency, 1), most.Load())
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 200}, statuses(e.store))
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

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
						func(ctx context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
							<-gate
							return s.listen(ctx, batch)
						})),
					outbox.On("", "Other", outbox.Handle(func(context.Context, outbox.Envelope) error {
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
			outbox.BatchOptions{Size: 10}, func(ctx context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
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
		require.Equal(t, 20+hot+stats.ColdDepth, leased)
		release()
		time.Sleep(time.Minute)
		require.Equal(t, n, s.events())
		require.NoError(t, e.Close(context.Background()))
	})
}

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
				}}, outbox.BatchOptions{Size: 10}, func(ctx context.Context, _ []outbox.Envelope) ([]outbox.Result, error) {
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

// The ListenerTimeout is one call's. Waiting for the batch and for the call before does
// not count.
func TestListenerTimeoutCountsFromTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left []time.Duration
		e := startBatches(t, outbox.Config{
			Mode:        outbox.SingleNode{Dispatch: outbox.DispatchOptions{ListenerTimeout: time.Second}},
			RetryPolicy: slowRetries,
			Interceptors: []outbox.Interceptor{outbox.After(func(ctx context.Context, _ outbox.Envelope, _ error) {
				require.NoError(t, ctx.Err(), "an interceptor's own work")
			})},
		}, outbox.BatchOptions{Size: 2, Wait: 3 * time.Second}, func(ctx context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
			deadline, _ := ctx.Deadline()
			left = append(left, time.Until(deadline))
			if batch[0].EventID[0] == 's' {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(900 * time.Millisecond)
			return nil, ctx.Err()
		})
		e.write(saidAll("e1", "e2")...)
		e.write(saidAll("e3", "e4")...)
		e.write(said("e5"))
		time.Sleep(10 * time.Second)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 5}, statuses(e.store))
		e.write(saidAll("s1", "s2")...)
		time.Sleep(10 * time.Second)
		require.Equal(t, []time.Duration{time.Second, time.Second, time.Second, time.Second}, left)
		row, _ := e.store.Row("s1")
		require.Equal(t, outbox.StatusRetry, row.Status)
		require.Equal(t, context.DeadlineExceeded.Error(), row.LastError)
		require.NoError(t, e.Close(context.Background()))
	})
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
					func(_ context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
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
			})}}, outbox.BatchOptions{Size: 1}, func(context.Context, []outbox.Envelope) ([]outbox.Result, error) {
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
		e := startBatches(t, outbox.Config{Mode: outbox.MultiNode{}}, outbox.BatchOptions{Size: 2}, func(context.Context, []outbox.Envelope) ([]outbox.Result, error) {
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

// What a dispatcher takes by hand is bounded, too.
func TestADispatcherRefusesWhatItsQueuesHaveNoRoomFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, routes := outboxtest.NewStore(), outbox.NewRegistry()
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		defer release()
		require.NoError(t, routes.Register(outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 5},
			func(context.Context, []outbox.Envelope) ([]outbox.Result, error) {
				<-gate
				return nil, nil
			}))))
		d, err := outbox.NewDispatcher(outbox.DispatcherConfig{
			DB: store.DB(), Store: store, Registry: routes, Logger: quiet, Options: outbox.DispatchOptions{HotCapacity: 7, ColdCapacity: 9},
		})
		require.NoError(t, err)
		require.NoError(t, d.Start(t.Context()))
		taken := map[string]int{}
		for i := range 100 {
			for path, offer := range map[string]func(outbox.Envelope) bool{"hot": d.EnqueueHot, "cold": d.Handle} {
				env := said(fmt.Sprint(path, i))
				env.AggregateType = outbox.Global
				if offer(env) {
					taken[path]++
					taken["all"]++
				}
				synctest.Wait()
			}
		}
		require.Equal(t, 10+7+9, taken["all"], taken)
		hot, cold := d.Depths()
		require.Equal(t, []int{7, 9}, []int{hot, cold})
		require.Zero(t, d.AvailableCapacity())
		release()
		require.NoError(t, d.Close(context.Background()))
	})
}

// An interceptor may hand an event to the listener of another type.
func TestAnEventThatAnInterceptorRenamesGoesToItsOwnListener(t *testing.T) {
	t.Parallel()
	rename := func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
			env.EventType = "Other"
			return next.OnEvent(ctx, env)
		})
	}
	var got sizes
	e := build(t, outbox.Config{Interceptors: []outbox.Interceptor{rename}}, nil)
	require.NoError(t, e.Register(
		outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 1}, func(context.Context, []outbox.Envelope) ([]outbox.Result, error) {
			return nil, outbox.Unrecoverable(errors.New("the wrong listener"))
		})),
		outbox.On("", "Other", outbox.BatchListener(outbox.BatchOptions{Size: 1}, got.listen)),
	))
	require.NoError(t, e.Start(t.Context()))
	e.write(said("e"))
	e.await("e", outbox.StatusDone)
	require.Equal(t, 1, got.events())
}

func TestOrderedDeliversBatchesOfOneInOrder(t *testing.T) {
	t.Parallel()
	var got []string
	want := named("e", 50)
	store := written(t, want...)
	e := startBatches(t, outbox.Config{Store: store, Mode: outbox.Ordered{}}, outbox.BatchOptions{Size: 10, Wait: time.Hour},
		func(_ context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
			require.Len(t, batch, 1)
			got = append(got, idsOf(batch)...)
			return nil, nil
		})
	e.await(want[49], outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, want, got)
}

func TestDrainDeliversBatchesOfOne(t *testing.T) {
	t.Parallel()
	var s sizes
	ds := outboxtest.Drain(t, outbox.DispatcherConfig{Store: written(t, "a", "b"), Logger: quiet},
		outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 10, Wait: time.Hour}, s.listen)))
	require.Len(t, ds, 2)
	require.Equal(t, []int{1, 1}, s.calls)
}

// panicking is a registry that panics.
type panicking struct{}

func (panicking) ListenerFor(outbox.AggregateType, outbox.EventType) (outbox.Listener, bool) {
	panic("no registry")
}

// careless is a registry that takes any listener.
type careless struct{ outbox.Listener }

func (c careless) ListenerFor(outbox.AggregateType, outbox.EventType) (outbox.Listener, bool) {
	return c.Listener, true
}

func TestRegistriesOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	var s sizes
	for name, tt := range map[string]struct {
		registry outbox.ListenerRegistry
		want     outbox.Status
		text     string
	}{
		"panics":            {panicking{}, outbox.StatusRetry, "no registry"},
		"bad batch options": {careless{outbox.BatchListener(outbox.BatchOptions{Concurrency: -1}, s.listen)}, outbox.StatusRetry, "BatchOptions.Size is 0"},
		"batches":           {careless{outbox.BatchListener(outbox.BatchOptions{Size: 3, Wait: time.Hour}, s.listen)}, outbox.StatusDone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, outbox.Config{Registry: tt.registry, RetryPolicy: slowRetries}, nil)
			e.write(saidAll("a", "b", "c")...)
			require.Contains(t, e.await("a", tt.want).LastError, tt.text)
			e.await("c", tt.want)
			require.NoError(t, e.Close(t.Context()))
		})
	}
}

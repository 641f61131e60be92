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

func (s *sizes) listen(_ context.Context, batch []outbox.Envelope) ([]error, error) {
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
					func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
						mu.Lock()
						calls++
						results := make([]error, len(batch))
						for i, env := range batch {
							longest = max(longest, time.Since(env.AvailableAt))
							if events++; env.EventID[0] == 'r' && env.Attempts == 0 {
								results[i] = errors.New("once more")
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
		e := startBatches(t, outbox.Config{}, outbox.BatchOptions{Size: 100}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
			got = append(got, len(batch))
			time.Sleep(time.Second)
			return nil, nil
		})
		e.write(said("first"))
		synctest.Wait()
		require.Equal(t, []int{1}, got)
		e.write(saidAll(named("e", 120)...)...)
		time.Sleep(5 * time.Second)
		require.NoError(t, e.Close(context.Background()))
		require.ElementsMatch(t, []int{1, 100, 20}, got)
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
					func(context.Context, []outbox.Envelope) ([]error, error) {
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
		}, outbox.BatchOptions{Size: 2, Wait: 3 * time.Second}, func(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
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
		row, _ := e.store.Row("s1")
		require.Equal(t, outbox.StatusRetry, row.Status)
		require.Equal(t, context.DeadlineExceeded.Error(), row.LastError)
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, []time.Duration{time.Second, time.Second, time.Second, time.Second}, left)
	})
}

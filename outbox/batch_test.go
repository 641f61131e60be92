package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type order struct{ Item string }

var placed = outbox.NewTopic[order]("Order", "Placed")

type batchFunc = func(ctx context.Context, batch []outbox.Envelope) ([]error, error)

// startBatches starts an engine whose listener of "Said" gets batches.
func startBatches(t *testing.T, cfg outbox.Config, opts outbox.BatchOptions, fn batchFunc) *engine {
	t.Helper()
	e := build(t, cfg, nil)
	require.NoError(t, e.Register(outbox.On("", "Said", outbox.BatchListener(opts, fn))))
	require.NoError(t, e.Start(t.Context()))
	return e
}

func saidAll(ids ...string) []outbox.Envelope {
	envs := make([]outbox.Envelope, len(ids))
	for i, id := range ids {
		envs[i] = said(id)
	}
	return envs
}

func sortedIDs(batch []outbox.Envelope) (ids []string) {
	for _, env := range batch {
		ids = append(ids, env.EventID)
	}
	slices.Sort(ids)
	return ids
}

var slowRetries = outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour })

func TestEachEventOfABatchHasAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	results := map[string]error{
		"done":       nil,
		"failed":     boom,
		"dead":       outbox.Dead(boom),
		"soon again": outbox.RetryIn(time.Minute, boom),
		"deferred":   outbox.Defer(time.Minute),
	}
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				e := startBatches(t, outbox.Config{Mode: mode, RetryPolicy: slowRetries}, outbox.BatchOptions{Size: len(results), Wait: time.Hour},
					func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
						calls++
						var answers []error
						for _, env := range batch {
							answers = append(answers, results[env.EventID])
						}
						return answers, nil
					})
				began := time.Now()
				for id := range results {
					e.write(said(id))
				}
				time.Sleep(time.Second)
				require.NoError(t, e.Close(context.Background()))
				require.Equal(t, 1, calls)
				for id, want := range map[string]struct {
					status   outbox.Status
					attempts int
					text     string
					due      time.Duration
				}{
					"done":       {outbox.StatusDone, 0, "", 0},
					"failed":     {outbox.StatusRetry, 1, "boom", time.Hour},
					"dead":       {outbox.StatusDead, 0, "boom", 0},
					"soon again": {outbox.StatusRetry, 1, "boom (retry after 1m0s)", time.Minute},
					"deferred":   {outbox.StatusNew, 0, "", time.Minute},
				} {
					row, _ := e.store.Row(id)
					require.Equal(t, want.status, row.Status, id)
					require.Equal(t, want.attempts, row.Attempts, id)
					require.Equal(t, want.text, row.LastError, id)
					require.Equal(t, want.due, row.AvailableAt.Sub(began.UTC()), id)
					require.Empty(t, row.LockedBy, id)
				}
			})
		})
	}
}

func TestWhatFailsTheFunctionFailsTheWholeBatch(t *testing.T) {
	t.Parallel()
	results := func(n int) batchFunc {
		return func(context.Context, []outbox.Envelope) ([]error, error) {
			return make([]error, n), nil
		}
	}
	for name, tt := range map[string]struct {
		fn   batchFunc
		text string
	}{
		"an error": {func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
			return make([]error, len(batch)), errors.New("the broker is away")
		}, "the broker is away"},
		"a panic":         {func(context.Context, []outbox.Envelope) ([]error, error) { panic("no stock") }, ": no stock"},
		"Goexit":          {func(context.Context, []outbox.Envelope) ([]error, error) { runtime.Goexit(); return nil, nil }, "the listener ended its goroutine (runtime.Goexit)"},
		"no errors":       {results(0), "the batch function returned 0 errors for 3 events; return one for each event, in the order of the batch, or nil if all are done"},
		"too few errors":  {results(2), "the batch function returned 2 errors for 3 events; return one for each event, in the order of the batch, or nil if all are done"},
		"too many errors": {results(4), "the batch function returned 4 errors for 3 events; return one for each event, in the order of the batch, or nil if all are done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attempts []int
			e := startBatches(t, outbox.Config{RetryPolicy: slowRetries}, outbox.BatchOptions{Size: 3, Wait: time.Hour},
				func(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
					if batch[0].EventID > "c" {
						return nil, nil
					}
					for _, env := range batch {
						attempts = append(attempts, env.Attempts)
					}
					return tt.fn(ctx, batch)
				})
			e.write(saidAll("a", "b", "c")...)
			for _, id := range []string{"a", "b", "c"} {
				row := e.await(id, outbox.StatusRetry)
				require.Equal(t, 1, row.Attempts)
				require.Contains(t, row.LastError, tt.text)
			}
			e.write(saidAll("d", "e", "f")...) // the listener goes on
			e.await("d", outbox.StatusDone)
			require.NoError(t, e.Close(t.Context()))
			require.Equal(t, []int{0, 0, 0}, attempts)
		})
	}
}

// A poison event fails its batches. The others do not die of that, although all are
// retried at the same time.
func TestNoEventDiesOfTheFailureOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := map[int]int{} // by size
		e := startBatches(t, outbox.Config{
			Mode:        outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3}},
			RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Second }),
		}, outbox.BatchOptions{Size: 20, Wait: time.Second}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
			calls[len(batch)]++
			for _, env := range batch {
				if env.EventID == "poison" {
					panic("poison")
				}
			}
			return nil, nil
		})
		e.write(saidAll(append(named("e", 19), "poison")...)...)
		time.Sleep(time.Minute)
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 19, outbox.StatusDead: 1}, statuses(e.store))
		require.Equal(t, map[int]int{20: 2, 1: 20}, calls)
	})
}

func TestATopicsBatchHasDecodedPayloads(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{RetryPolicy: slowRetries}, nil)
	got := make(chan []outbox.Event[order], 1)
	require.NoError(t, e.Register(placed.ListenBatch(outbox.BatchOptions{Size: 2, Wait: time.Hour},
		func(_ context.Context, batch []outbox.Event[order]) ([]error, error) {
			got <- batch
			return nil, nil
		})))
	require.NoError(t, e.Start(t.Context()))
	garbled := placed.Envelope("o-2", order{})
	garbled.EventID, garbled.Payload = "garbled", outbox.RawJSON(`{"Item": 7}`)
	e.write(placed.Envelope("o-1", order{"tea"}), garbled, placed.Envelope("o-3", order{"milk"}))
	batch := receive(t, got)
	require.Len(t, batch, 2)
	items := map[string]string{}
	for _, ev := range batch {
		items[ev.Envelope.AggregateID] = ev.Payload.Item
	}
	require.Equal(t, map[string]string{"o-1": "tea", "o-3": "milk"}, items)
	require.Contains(t, e.await("garbled", outbox.StatusDead).LastError, "does not fit field Item")
}

func TestAPayloadThatIsNullIsInItsBatch(t *testing.T) {
	t.Parallel()
	topic := outbox.NewTopic[any]("", "Anything")
	var batch []outbox.Event[any]
	binding := topic.ListenBatch(outbox.BatchOptions{Size: 2}, func(_ context.Context, got []outbox.Event[any]) ([]error, error) {
		batch = got
		return nil, nil
	})
	err := binding.Listener.OnEvent(t.Context(), topic.Envelope("", nil))
	require.NoError(t, err)
	require.Len(t, batch, 1)
	require.Nil(t, batch[0].Payload)
}

// One listener of several topics, as a relay to a broker has it.
func TestTopicsThatShareAListenerShareItsBatches(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{}, nil)
	got := make(chan []string, 1)
	relay := outbox.BatchListener(outbox.BatchOptions{Size: 3, Wait: time.Hour}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
		got <- sortedIDs(batch)
		return nil, nil
	})
	var envs []outbox.Envelope
	for i, kind := range []outbox.EventType{"Placed", "Paid", "Sent"} {
		require.NoError(t, e.Register(outbox.On("Order", kind, relay)))
		envs = append(envs, outbox.Envelope{EventID: fmt.Sprint(i), AggregateType: "Order", EventType: kind, Payload: outbox.JSON(i)})
	}
	require.NoError(t, e.Start(t.Context()))
	e.write(envs...)
	require.Equal(t, []string{"0", "1", "2"}, receive(t, got))
}

// Two outboxes that share a listener, as with fx, share no batch: the context of a call
// is one outbox's.
func TestOutboxesThatShareAListenerHaveTheirOwnBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got [][]string
		listener := outbox.BatchListener(outbox.BatchOptions{Size: 4, Wait: time.Second}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, sortedIDs(batch))
			return nil, nil
		})
		var engines []*engine
		for i := range 2 {
			e := build(t, outbox.Config{}, nil)
			require.NoError(t, e.Register(outbox.On("", "Said", listener)))
			require.NoError(t, e.Start(t.Context()))
			e.write(saidAll(fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))...)
			time.Sleep(100 * time.Millisecond)
			engines = append(engines, e)
		}
		time.Sleep(2 * time.Second)
		for _, e := range engines {
			require.NoError(t, e.Close(context.Background()))
		}
		require.Equal(t, [][]string{{"0a", "0b"}, {"1a", "1b"}}, got)
	})
}

func TestInterceptorsRunAroundEachEventOfABatch(t *testing.T) {
	t.Parallel()
	refusal := errors.New("refused")
	var c calls
	e := startBatches(t, outbox.Config{RetryPolicy: slowRetries, Interceptors: []outbox.Interceptor{
		outbox.After(func(_ context.Context, env outbox.Envelope, err error) {
			if (err != nil) == (env.EventID == "a" || env.EventID == "x") {
				c.add(env.EventID)
			}
		}),
		outbox.Before(func(_ context.Context, env outbox.Envelope) error {
			if env.EventID == "x" {
				return refusal
			}
			return nil
		}),
	}}, outbox.BatchOptions{Size: 3, Wait: time.Hour}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
		results := make([]error, len(batch))
		for i, env := range batch {
			if env.EventID == "a" {
				results[i] = refusal
			}
		}
		return results, nil
	})
	e.write(saidAll("a", "x", "b", "c")...)
	for id, want := range map[string]outbox.Status{"a": outbox.StatusRetry, "x": outbox.StatusRetry, "b": outbox.StatusDone, "c": outbox.StatusDone} {
		e.await(id, want)
	}
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"a": 1, "x": 1, "b": 1, "c": 1}, c.n, "After saw each event's own error")
}

// The context of a call has no delivery, in a batch of one neither.
func TestABatchCannotCompleteItsEvents(t *testing.T) {
	t.Parallel()
	var e *engine
	complete := func(ctx context.Context, _ []outbox.Envelope) ([]error, error) {
		return nil, e.Writer().Complete(ctx, outboxtest.NewScope(e.store.DB()))
	}
	const text = "outbox: no delivery under way in the context: a batch listener gets many events; record each event in an inbox in its transaction instead"
	for name, mode := range map[string]outbox.Mode{"batch": outbox.SingleNode{}, "batch of one": outbox.Ordered{}} {
		t.Run(name, func(t *testing.T) {
			want := outbox.StatusRetry
			if name != "batch" {
				want = outbox.StatusDead // there is one attempt
			}
			e = startBatches(t, outbox.Config{Mode: mode, RetryPolicy: slowRetries}, outbox.BatchOptions{Size: 1}, complete)
			e.write(said("e"))
			e.Wake()
			require.Equal(t, text, e.await("e", want).LastError)
		})
	}
}

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// batchDiary writes down what a batch listener gets. It fails the test when a batch has
// two events of a key.
func batchDiary(t *testing.T, d *diary, fn func(env outbox.Envelope) error) batchFunc {
	return func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
		keys := map[string]bool{}
		results := make([]error, len(batch))
		for i, env := range batch {
			if keys[env.AggregateID] {
				t.Errorf("two events of %s in a batch", env.AggregateID)
			}
			keys[env.AggregateID] = true
			d.begin(env)
			results[i] = fn(env)
		}
		time.Sleep(time.Millisecond)
		for _, env := range batch {
			d.end(env)
		}
		return results, nil
	}
}

// Each key is delivered in order by a batch listener too; the batches have events of
// different keys. An event that fails is delivered again before those behind it.
func TestBatchesKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var failed sync.Map
		e := startBatches(t, byKey(outbox.OrderedByKey{RunLength: 5}), outbox.BatchOptions{Size: 7, Wait: 10 * time.Millisecond, Concurrency: 2},
			batchDiary(t, &d, func(env outbox.Envelope) error {
				if _, again := failed.LoadOrStore(env.EventID, true); !again && env.EventID[len(env.EventID)-1] == '3' {
					return errors.New("boom")
				}
				return nil
			}))
		keys := named("k", 15)
		for _, k := range keys {
			e.write(numbered(k, 10)...)
		}
		time.Sleep(time.Minute)
		for _, k := range keys {
			require.Equal(t, slices.Insert(idsOf(numbered(k, 10)), 3, k+"-00003"), d.of(k))
		}
		require.Empty(t, d.bad)
		require.NoError(t, e.Close(context.Background()))
	})
}

// mixed are keys with an event of one type and then one of the other.
func mixed(first, second outbox.EventType, keys int) (envs []outbox.Envelope) {
	for _, k := range named("k", keys) {
		run := numbered(k, 4)
		for i := range run {
			run[i].EventType = [2]outbox.EventType{first, second}[i%2]
		}
		envs = append(envs, run...)
	}
	return envs
}

// A run has events for a batch and others. Workers do not wait for the batches, and no
// more other listeners run than there are workers.
func TestARunWithBatchesAndOthersKeepsToTheWorkers(t *testing.T) {
	t.Parallel()
	for _, types := range [][2]outbox.EventType{{"Said", "Other"}, {"Other", "Said"}} {
		t.Run(string(types[0])+" first", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				var running, most atomic.Int32
				began := time.Now()
				var first time.Duration
				e := build(t, byKey(outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1}}), nil)
				require.NoError(t, e.Register(
					outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 100, Wait: time.Minute}, batchDiary(t, &d, func(outbox.Envelope) error { return nil }))),
					outbox.On("", "Other", outbox.ListenerFunc(d.listen(func(outbox.Envelope) error {
						most.Store(max(running.Add(1), most.Load()))
						time.Sleep(time.Millisecond)
						running.Add(-1)
						return nil
					}))),
					outbox.On("", "Alone", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
						first = time.Since(began)
						return nil
					})),
				))
				e.write(mixed(types[0], types[1], 20)...)
				alone := of("z", "z")
				alone.EventType = "Alone"
				e.write(alone)
				require.NoError(t, e.Start(t.Context()))
				pass(10 * time.Minute)
				require.LessOrEqual(t, most.Load(), int32(1), "the workers bound what is in no batch")
				require.Less(t, first, time.Second, "a worker waited for a batch")
				for _, k := range named("k", 20) {
					require.Equal(t, idsOf(numbered(k, 4)), d.of(k))
				}
				require.Empty(t, d.bad)
				stats, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.Zero(t, stats.ColdDepth)
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

// Closing delivers the runs that wait for their batches.
func TestCloseDeliversTheRunsOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := build(t, byKey(outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 2}}), nil)
		require.NoError(t, e.Register(
			outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 100, Wait: time.Hour}, batchDiary(t, &d, func(outbox.Envelope) error { return nil }))),
			outbox.On("", "Other", outbox.ListenerFunc(d.listen(nil)))))
		require.NoError(t, e.Start(t.Context()))
		e.write(mixed("Said", "Other", 10)...)
		pass(time.Minute)
		require.Empty(t, d.keys)
		require.NoError(t, e.Close(context.Background()))
		for _, k := range named("k", 10) {
			require.Equal(t, idsOf(numbered(k, 4)), d.of(k))
		}
		for _, row := range e.store.Rows() {
			require.Empty(t, row.LockedBy)
			require.Equal(t, outbox.StatusDone, row.Status, row.Envelope.EventID)
		}
	})
}

// A pause in the middle of a run: what is behind the paused event waits, in each key.
func TestAPausedEventInARunIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, 10 * time.Second} {
		t.Run(fmt.Sprint("a batch waits ", wait), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				kind := outbox.EventKind{EventType: "Other"}
				e := build(t, byKey(outbox.OrderedByKey{}), d.listen(func(outbox.Envelope) error {
					time.Sleep(time.Second)
					return nil
				}))
				require.NoError(t, e.Register(outbox.On("", "Other", outbox.BatchListener(outbox.BatchOptions{Size: 10, Wait: wait}, batchDiary(t, &d, func(outbox.Envelope) error { return nil })))))
				require.NoError(t, e.Start(t.Context()))
				e.write(mixed("Said", "Other", 5)...)
				pass(500 * time.Millisecond) // the first of each run is being delivered
				if wait > 0 {
					pass(wait / 2) // the second waits in its batch
				}
				require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kind}))
				pass(time.Hour)
				for _, k := range named("k", 5) {
					require.Equal(t, idsOf(numbered(k, 1)), d.of(k))
				}
				for _, row := range e.store.Rows() {
					require.Empty(t, row.LockedBy)
					require.Zero(t, row.Attempts)
				}
				require.NoError(t, e.Resume(t.Context(), kind))
				pass(time.Minute)
				for _, k := range named("k", 5) {
					require.Equal(t, idsOf(numbered(k, 4)), d.of(k))
				}
				require.Empty(t, d.bad)
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

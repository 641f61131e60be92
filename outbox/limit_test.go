package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

var kindSaid = outbox.EventKind{EventType: "Said"}

// limitedModes are the modes that have limits, with these.
func limitedModes(rules outbox.Rules) map[string]outbox.Mode {
	dispatch := outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kindSaid: rules}, Workers: 3, HotCapacity: 50, ColdCapacity: 50}
	return map[string]outbox.Mode{
		"single": outbox.SingleNode{Dispatch: dispatch},
		"multi":  outbox.MultiNode{Dispatch: dispatch},
	}
}

// pass lets time pass, and waits for what happens then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// several writes n events in a transaction of their own.
func several(e *engine, n int, prefix string, kind outbox.EventType) (ids []string) {
	e.t.Helper()
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = outbox.Envelope{EventID: fmt.Sprintf("%s%05d", prefix, i), EventType: kind, Payload: outbox.JSON(i)}
	}
	return e.write(envs...)
}

func TestARateOfTenASecondWithABurstOfOneIsExact(t *testing.T) {
	t.Parallel()
	for name, mode := range limitedModes(outbox.Rules{Rate: 10, Burst: 1}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var at []time.Duration
				began := time.Now()
				e := start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
					at = append(at, time.Since(began)) // deliveries begin one by one
					return nil
				})
				several(e, 200, "e", "Said")
				pass(30 * time.Second)
				require.NoError(t, e.Close(context.Background()))
				require.Len(t, at, 200)
				for i, d := range at {
					require.Equal(t, time.Duration(i)*100*time.Millisecond, d, i)
				}
				for _, row := range e.store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
					require.Zero(t, row.Attempts)
				}
			})
		})
	}
}

func TestABurstIsDeliveredAtOnceAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		began := time.Now()
		mode := limitedModes(outbox.Rules{Rate: 2, Burst: 5})["single"]
		e := start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began).Round(time.Millisecond))
			return nil
		})
		several(e, 7, "e", "Said")
		pass(10 * time.Second)
		several(e, 6, "f", "Said")
		pass(10 * time.Second)
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		require.Equal(t, []time.Duration{0, 0, 0, 0, 0, ms(500), ms(1000), ms(10_000), ms(10_000), ms(10_000), ms(10_000), ms(10_000), ms(10_500)}, at)
	})
}

// The listener of the limited kind hangs. Its events fill neither the queues of the
// others nor their workers; when it goes on, all are delivered once.
func TestALimitedKindHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	for name, mode := range limitedModes(outbox.Rules{Concurrency: 1}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				var mu sync.Mutex
				var limited []string
				logs := &logbook{}
				e := build(t, outbox.Config{Mode: mode, Logger: slog.New(logs)}, func(_ context.Context, env outbox.Envelope) error {
					<-goOn
					mu.Lock()
					defer mu.Unlock()
					limited = append(limited, env.EventID)
					return nil
				})
				others := 0
				require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
					mu.Lock()
					defer mu.Unlock()
					others++
					return nil
				}))))
				require.NoError(t, e.Start(t.Context()))
				var want []string
				for i := range 20 {
					want = append(want, several(e, 20, fmt.Sprintf("l%03d-", i), "Said")...)
					several(e, 20, fmt.Sprintf("o%03d-", i), "Other")
					pass(time.Millisecond) // the writers pause, so that the hot queue never overflows
				}
				pass(time.Minute)
				require.Equal(t, 400, others)
				require.Empty(t, limited)
				st, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.LessOrEqual(t, st.ColdDepth, 16, "the rest is in the table")
				close(goOn)
				pass(time.Minute)
				require.NoError(t, e.Close(context.Background()))
				require.ElementsMatch(t, want, limited)
				for _, row := range e.store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
					require.Zero(t, row.Attempts)
				}
				require.Empty(t, logs.problems())
			})
		})
	}
}

// A transaction that has events of both kinds: under leases it goes through the table
// when the lane is full, and the other event is delivered at once all the same.
func TestAnEventBesideALimitedOneIsDeliveredAtOnce(t *testing.T) {
	t.Parallel()
	for name, mode := range limitedModes(outbox.Rules{Concurrency: 1}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				e := build(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
					<-goOn
					return nil
				})
				var at time.Time
				require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
					at = time.Now()
					return nil
				}))))
				require.NoError(t, e.Start(t.Context()))
				several(e, 100, "l", "Said")
				pass(time.Second)
				wrote := time.Now()
				e.write(said("limited"), outbox.Envelope{EventID: "other", EventType: "Other", Payload: outbox.JSON(1)})
				pass(time.Second)
				require.WithinDuration(t, wrote, at, 10*time.Millisecond)
				close(goOn)
				pass(time.Minute)
				e.await("limited", outbox.StatusDone)
			})
		})
	}
}

func TestNoMoreListenersRunThanTheLimitAllows(t *testing.T) {
	t.Parallel()
	for name, mode := range limitedModes(outbox.Rules{Concurrency: 4}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				running, most, calls := 0, 0, 0
				e := start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
					mu.Lock()
					running++
					calls++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					running--
					mu.Unlock()
					return nil
				})
				several(e, 1000, "e", "Said")
				pass(3 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, 1000, calls, "the lane never ran dry: 250 rounds of 10 ms")
				require.Equal(t, 4, most)
			})
		})
	}
}

func TestClosingDoesNotWaitForTheRate(t *testing.T) {
	t.Parallel()
	for name, mode := range limitedModes(outbox.Rules{Rate: 1. / 60}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
					return nil
				})
				several(e, 10, "e", "Said")
				pass(time.Second)
				began := time.Now()
				require.NoError(t, e.Close(context.Background()))
				require.Less(t, time.Since(began), time.Second)
				pending := 0
				for _, row := range e.store.Rows() {
					if row.Status == outbox.StatusNew {
						pending++
						require.Zero(t, row.Attempts)
						require.Empty(t, row.LockedBy)
					}
				}
				require.Equal(t, 9, pending)
			})
		})
	}
}

func TestALaneSurvivesAListenerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	mode := limitedModes(outbox.Rules{Concurrency: 1, Rate: 1000})["single"]
	e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
		if env.EventID < "e00005" && env.Attempts == 0 {
			runtime.Goexit()
		}
		return nil
	})
	for _, id := range several(e, 20, "e", "Said") {
		e.await(id, outbox.StatusDone)
	}
}

func TestLimitsThatAreWrongAreNamed(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{
		kindSaid:         {Concurrency: -1, Rate: -2, Burst: -3},
		{}:               {Concurrency: 1},
		{EventType: "b"}: {Rate: 2e6},
		{EventType: "c"}: {Rate: 1e-9},
	}}}})
	for _, want := range []string{
		"Config.Mode.Dispatch.Rules[__GLOBAL__/Said].Concurrency is -1; it must not be negative",
		"Config.Mode.Dispatch.Rules[__GLOBAL__/Said].Rate is -2 deliveries a second; it must be positive",
		"Config.Mode.Dispatch.Rules[__GLOBAL__/Said].Burst is -3; it must not be negative",
		"Config.Mode.Dispatch.Rules[__GLOBAL__/].EventType is required",
		"Config.Mode.Dispatch.Rules[__GLOBAL__/b].Rate is 2e+06 deliveries a second; the limit is 1e+06",
		"Config.Mode.Dispatch.Rules[__GLOBAL__/c].Rate is 1e-09 deliveries a second, less than one a day",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestALimitForAKindWithoutAListenerIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	mode := outbox.SingleNode{Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{{EventType: "Sait"}: {Rate: 1}}}}
	e := build(t, outbox.Config{Mode: mode}, handled)
	err := e.Start(t.Context())
	require.ErrorContains(t, err, "Config.Mode.Dispatch.Rules[__GLOBAL__/Sait] is for a kind for which no listener is registered")
	require.NoError(t, e.Register(outbox.On("", "Sait", outbox.ListenerFunc(handled))))
	require.NoError(t, e.Start(t.Context()), "it may be started after all")
}

// A backlog of a limited kind in the table is read about as fast as it is delivered. A read returns
// the rows of its range that are in hand, too.
func TestALimitedBacklogIsReadAFewTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &readLog{Store: outboxtest.NewStore()}
		for i := range 1000 {
			insertDue(t, s.Store, fmt.Sprintf("e%04d", i), time.Duration(i-2000)*time.Second)
		}
		calls := 0
		e := start(t, outbox.Config{Store: s, Mode: limitedModes(outbox.Rules{Concurrency: 1})["multi"]},
			func(context.Context, outbox.Envelope) error {
				time.Sleep(10 * time.Millisecond)
				calls++
				return nil
			})
		pass(11 * time.Second)
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, 1000, calls, "the lane never ran dry")
		require.Less(t, s.rows, 5000)
	})
}

package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A hundred events of a key at ten a second take ten seconds. Each that waits costs about one write, and
// no other key waits.
func TestTheRateOfAKeyHoldsAndCostsAWriteForAnEvent(t *testing.T) {
	t.Parallel()
	for name, mode := range deferring(outbox.Rules{KeyRate: 10}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r := newMarks(), newEndpoints()
				e := start(t, outbox.Config{Store: store, Mode: mode}, r.hear)
				ofKey(e, "busy", 50, "a")
				ofKey(e, "busy", 50, "b")
				for i := range 50 {
					ofKey(e, fmt.Sprint("quiet", i), 1, "a")
				}
				pass(time.Second)
				require.InDelta(t, 10, len(r.delivered("busy")), 2)
				for i := range 50 {
					require.Len(t, r.delivered(fmt.Sprint("quiet", i)), 1)
				}
				pass(4 * time.Second)
				require.InDelta(t, 50, len(r.delivered("busy")), 3)
				pass(6 * time.Second)
				require.Len(t, r.delivered("busy"), 100)
				require.LessOrEqual(t, store.deferred(), 110)
				requireNoAttempts(t, e.store)
			})
		})
	}
}

// Events come all the time, at twice the rate of the key.
func TestTheRateOfAKeyHoldsWhileEventsCome(t *testing.T) {
	t.Parallel()
	for name, mode := range deferring(outbox.Rules{KeyRate: 5}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r := newMarks(), newEndpoints()
				e := start(t, outbox.Config{Store: store, Mode: mode}, r.hear)
				for i := range 300 {
					ofKey(e, "busy", 1, fmt.Sprintf("%03d", i))
					time.Sleep(80*time.Millisecond + rand.N(40*time.Millisecond))
				}
				synctest.Wait()
				require.InDelta(t, 150, len(r.delivered("busy")), 8)
				pass(31 * time.Second)
				require.Len(t, r.delivered("busy"), 300)
				require.LessOrEqual(t, store.deferred(), 2*300)
			})
		})
	}
}

// When a pause of the kind ends, many slots of the key are over. The rate holds all the same.
func TestTheRateOfAKeyHoldsAfterAPauseOfTheKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMarks(), newEndpoints()
		e := start(t, outbox.Config{Store: store, Mode: deferring(outbox.Rules{KeyRate: 2})["multi"]}, r.hear)
		ofKey(e, "busy", 100, "a")
		pass(5 * time.Second)
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
		pass(time.Minute)
		before := len(r.delivered("busy"))
		require.InDelta(t, 11, before, 2)
		require.NoError(t, e.Resume(t.Context(), kindSaid))
		pass(10 * time.Second)
		require.InDelta(t, 20, len(r.delivered("busy"))-before, 3)
		pass(40 * time.Second)
		require.Len(t, r.delivered("busy"), 100)
		require.LessOrEqual(t, store.deferred(), 250)
	})
}

// A key that is busy keeps no worker from the other keys, however long its deliveries take.
func TestNoMoreListenersOfAKeyRunThanItsConcurrencyAllows(t *testing.T) {
	t.Parallel()
	for name, mode := range deferring(outbox.Rules{KeyConcurrency: 2}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r := newMarks(), newEndpoints()
				r.takes = 100 * time.Millisecond
				e := start(t, outbox.Config{Store: store, Mode: mode}, r.hear)
				ofKey(e, "busy", 100, "a")
				pass(20 * time.Millisecond)
				for i := range 14 {
					ofKey(e, fmt.Sprint("quiet", i), 1, "a")
				}
				pass(250 * time.Millisecond)
				for i := range 14 {
					require.Len(t, r.delivered(fmt.Sprint("quiet", i)), 1)
				}
				pass(10 * time.Second)
				require.Len(t, r.delivered("busy"), 100)
				require.Equal(t, 2, r.most["busy"])
				require.LessOrEqual(t, store.deferred(), 250)
				requireNoAttempts(t, e.store)
			})
		})
	}
}

// While a listener hangs, the other events of its key come up more and more rarely.
func TestAListenerThatHangsMakesFewWritesForItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMarks(), newEndpoints()
		r.takes = time.Hour
		e := start(t, outbox.Config{Store: store, Mode: deferring(outbox.Rules{KeyConcurrency: 1})["multi"]}, r.hear)
		ofKey(e, "busy", 1, "a")
		pass(time.Second)
		ofKey(e, "busy", 20, "b")
		pass(59 * time.Minute)
		require.Equal(t, 1, r.called("busy"))
		require.LessOrEqual(t, store.deferred(), 20*(12+8), "in five minutes at the latest")
		r.mu.Lock()
		r.takes = time.Millisecond
		r.mu.Unlock()
		pass(10 * time.Minute)
		require.Len(t, r.delivered("busy"), 21)
	})
}

// One delivery in 50 hangs for ten seconds, so that all four places of the key hang again and again. The
// key is at work for more than half of the time all the same.
func TestDeliveriesThatHangDoNotSpreadABacklogOfTheirKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const events, places = 1000, 4
		store := newMarks()
		var mu sync.Mutex
		var calls int
		var work time.Duration // of all calls
		begin := time.Now()
		mode := outbox.MultiNode{Poll: rarely, Dispatch: outbox.DispatchOptions{
			Rules: map[outbox.EventKind]outbox.Rules{kindSaid: {KeyConcurrency: places}},
		}}
		e := start(t, outbox.Config{Store: store, Mode: mode}, func(context.Context, outbox.Envelope) error {
			mu.Lock()
			calls++
			takes := 10 * time.Millisecond
			if calls%50 == 0 {
				takes = 10 * time.Second
			}
			work += takes
			mu.Unlock()
			time.Sleep(takes)
			return nil
		})
		ofKey(e, "busy", events, "a")
		for statuses(store.Store)[outbox.StatusDone] < events {
			pass(time.Second)
		}
		require.Less(t, time.Since(begin), 2*work/places)
		require.LessOrEqual(t, store.deferred(), 8*events)
	})
}

func TestBoundsOfKeysThatAreWrongAreNamed(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: deferring(outbox.Rules{KeyConcurrency: -1, KeyRate: 2e6})["single"]})
	require.ErrorContains(t, err, "Rules[__GLOBAL__/Said].KeyConcurrency is -1; it must not be negative")
	require.ErrorContains(t, err, "Rules[__GLOBAL__/Said].KeyRate is 2e+06 deliveries a second; the limit is 1e+06")
	for name, mode := range breaking(outbox.Rules{KeyConcurrency: 1, KeyRate: 1}) {
		_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: mode})
		if name == "single" || name == "multi" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "Rules[__GLOBAL__/Said].KeyConcurrency is 1, but")
		require.ErrorContains(t, err, "Rules[__GLOBAL__/Said].KeyRate is 1, but")
	}
}

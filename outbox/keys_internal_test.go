package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The memory for keys is bounded: further keys are neither paused nor bounded, and have room again when
// the pauses are over.
func TestAProcessRemembersABoundedNumberOfKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeys(slog.New(slog.DiscardHandler), clockOr(nil), "node-1")
		of := func(n int) *delivery {
			return &delivery{env: &Envelope{EventType: "Said", AggregateID: fmt.Sprint(n)}}
		}
		rules := keyBounds{rate: 1. / 3600}
		for n := range maxKeys {
			require.Equal(t, time.Now().Add(time.Hour).UTC(), k.ask(of(n), time.Hour, "down"))
		}
		require.NotNil(t, k.begin(of(0), rules))
		for n := range 3 { // further keys
			require.Equal(t, time.Now().Add(time.Minute).UTC(), k.ask(of(maxKeys+n), time.Minute, "down"))
			require.Nil(t, k.begin(of(maxKeys+n), rules))
			require.Nil(t, k.begin(of(maxKeys+n), rules), "no bound")
		}
		require.Len(t, k.states, maxKeys)
		require.Len(t, k.shared.unstored, maxSharedKeys)
		time.Sleep(time.Hour + keyMemory + time.Second)
		require.Nil(t, k.begin(of(maxKeys), rules))
		require.NotNil(t, k.begin(of(maxKeys), rules))
		require.Len(t, k.states, 1, "the pauses are forgotten")
	})
}

func TestAKeyIsForgottenAfterItsLastDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeys(slog.New(slog.DiscardHandler), clockOr(nil), "node-1")
		rules := keyBounds{concurrency: 1}
		dl := &delivery{env: &Envelope{EventType: "Said", AggregateID: "a"}}
		require.Nil(t, k.begin(dl, rules))
		require.True(t, k.some.Load())
		dl.outcome = OutcomeDone
		k.end(dl)
		require.False(t, k.some.Load())

		dl.err, dl.outcome = errors.New("down"), OutcomeRetry
		k.note(dl, Breaker{Failures: 5}, true)
		require.True(t, k.some.Load())
		k.note(dl, Breaker{Failures: 5}, false)
		require.False(t, k.some.Load(), "a success ends the row of failures")
	})
}

// The slots of a key are on a grid of whole microseconds, which differs from key to key.
func TestTheSlotsOfAKeyAreOnItsGrid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	offsets := map[time.Duration]bool{}
	for n := range 20 {
		for _, rate := range []float64{minRate, 1. / 60, 0.7, 1, 3, 10, 999, maxRate} {
			g := gridOf(keyOfKind{EventKind{EventType: "Said"}, fmt.Sprint(n)}, keyBounds{rate: rate})
			first := g.next(now)
			require.False(t, first.Before(now))
			require.Less(t, first.Sub(now), g.interval+time.Microsecond)
			require.True(t, g.has(first))
			require.Equal(t, first, storedTime(first), "databases store it")
			require.Equal(t, first, g.next(first))
			require.Equal(t, first.Add(g.interval), g.next(first.Add(1)))
			require.InEpsilon(t, 1/rate, g.interval.Seconds(), 0.001)
			require.Equal(t, g.interval == time.Microsecond, g.has(first.Add(time.Microsecond)))
			if rate == 1 {
				offsets[g.offset] = true
			}
		}
	}
	require.Greater(t, len(offsets), 10)
}

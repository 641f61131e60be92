package outbox_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestExponentialBackoffStaysInItsBounds(t *testing.T) {
	t.Parallel()
	base, limit := 200*time.Millisecond, time.Minute
	policy := outbox.ExponentialBackoff(base, limit)
	for attempt, middle := range map[int]time.Duration{
		math.MinInt: base, 0: base, 1: base, 2: 2 * base, 5: 16 * base, 9: 256 * base,
		10: limit, 63: limit, 64: limit, 65: limit, math.MaxInt: limit,
	} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			d := policy.Delay(attempt)
			low, high = min(low, d), max(high, d)
		}
		require.GreaterOrEqual(t, low, middle/2, "attempt %d", attempt)
		require.LessOrEqual(t, high, min(limit, middle+middle/2), "attempt %d", attempt)
		require.Greater(t, high-low, middle/4, "attempt %d has no jitter", attempt)
	}
}

func TestExponentialBackoffWithExtremeSettings(t *testing.T) {
	t.Parallel()
	for _, p := range []outbox.RetryPolicy{
		outbox.ExponentialBackoff(0, 0), outbox.ExponentialBackoff(-1, -1),
		outbox.ExponentialBackoff(math.MaxInt64, math.MaxInt64), outbox.ExponentialBackoff(time.Hour, time.Second),
		outbox.ExponentialBackoff(1, math.MaxInt64),
	} {
		for _, attempt := range []int{-1, 0, 1, 2, 40, 62, 63, 64, 1000} {
			for range 100 {
				require.GreaterOrEqual(t, p.Delay(attempt), time.Duration(0))
			}
		}
	}
}

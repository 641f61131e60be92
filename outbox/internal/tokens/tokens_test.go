package tokens_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/tokens"
)

// taken are the times, since the start, at which somebody who always waits gets n tokens.
func taken(bucket *tokens.Bucket, start time.Time, n int) (at []time.Duration) {
	now := start
	for len(at) < n {
		if wait := bucket.Take(now); wait > 0 {
			now = now.Add(wait)
			continue
		}
		at = append(at, now.Sub(start))
	}
	return at
}

func TestABucketBoundsARate(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}, taken(tokens.New(10, 1), start, 4))
	bucket := tokens.New(10, 3)
	require.Equal(t, []time.Duration{0, 0, 0, 100 * ms, 200 * ms}, taken(bucket, start, 5))
	require.Equal(t, []time.Duration{0, 0, 0, 100 * ms}, taken(bucket, start.Add(time.Hour), 4), "a pause fills the bucket, and no more")
	require.Equal(t, []time.Duration{0, 4 * time.Hour}, taken(tokens.New(1.0/(4*3600), 1), start, 2))
	require.Len(t, taken(tokens.New(1e-9, 1_000_000_000), start, 1000), 1000, "times stay in range")
}

func TestAChangedRateKeepsTheTokensAndAddsNone(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(change func(b *tokens.Bucket)) []time.Duration {
		bucket := tokens.New(10, 4)
		change(bucket)
		return taken(bucket, start, 4)
	}
	require.Equal(t, []time.Duration{0, 0, 200 * ms, 400 * ms}, after(func(b *tokens.Bucket) {
		b.Set(start, 5, 2, 0)
	}), "the smaller bucket is full")
	require.Equal(t, []time.Duration{0, 0, 50 * ms, 100 * ms}, after(func(b *tokens.Bucket) {
		b.Set(start, 5, 2, 0)
		b.Set(start, 20, 8, 0)
	}), "the larger bucket has as many tokens as the smaller")
	require.Equal(t, []time.Duration{0, 0, 0, 50 * ms}, after(func(b *tokens.Bucket) {
		b.Set(start, 5, 2, 0)
		b.Set(start, 20, 8, 1)
	}), "and the token that was added")
	require.Equal(t, []time.Duration{100 * ms, 200 * ms, 300 * ms, 400 * ms}, after(func(b *tokens.Bucket) {
		b.Set(start.Add(-time.Hour), 0, 0, 0)
		require.Positive(t, b.Take(start.Add(-time.Minute)), "a burst of 0 has no tokens")
		b.Set(start, 10, 4, 0)
	}))
	require.Equal(t, []time.Duration{50 * ms, 150 * ms, 250 * ms, 350 * ms}, after(func(b *tokens.Bucket) {
		for range 4 {
			require.Zero(t, b.Take(start.Add(-25*ms)))
		}
		b.Set(start, 5, 4, 0) // a quarter of a token
		b.Set(start, 10, 4, 0.25)
	}))
}

package outbox

import (
	"math/rand/v2"
	"time"
)

// RetryPolicy says how long to wait before the next delivery of an event that
// failed. It must be safe for concurrent use.
type RetryPolicy interface {
	// Delay is the wait after the given number of failed attempts, from 1 on. A
	// negative delay is zero.
	Delay(attempt int) time.Duration
}

// RetryPolicyFunc makes a function a [RetryPolicy].
type RetryPolicyFunc func(attempt int) time.Duration

// Delay calls f.
func (f RetryPolicyFunc) Delay(attempt int) time.Duration { return f(attempt) }

// Defaults of [ExponentialBackoff].
const (
	DefaultRetryBase = 200 * time.Millisecond
	DefaultRetryMax  = time.Minute
)

// ExponentialBackoff waits min(limit, base·2^(attempt-1)) times a jitter from
// [0.5, 1.5), never more than limit. A base or a limit that is not positive is
// replaced by the default, 200 ms and 1 minute, and a limit below the base by the
// base.
func ExponentialBackoff(base, limit time.Duration) RetryPolicy {
	if base <= 0 {
		base = DefaultRetryBase
	}
	if limit <= 0 {
		limit = DefaultRetryMax
	}
	return &exponentialBackoff{base: base, limit: max(limit, base)}
}

type exponentialBackoff struct{ base, limit time.Duration }

func (b *exponentialBackoff) Delay(attempt int) time.Duration {
	d := b.limit
	// base << n overflows for a large n: compare before shifting.
	if n := max(attempt, 1) - 1; n < 63 && b.base <= b.limit>>n {
		d = b.base << n
	}
	jittered := float64(d) * (0.5 + rand.Float64())
	if jittered >= float64(b.limit) { // compared as floats: the product may not fit a Duration
		return b.limit
	}
	return time.Duration(jittered)
}

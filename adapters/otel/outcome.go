package outboxotel

import (
	"context"
	"errors"

	"github.com/outboxkit/outbox-go/outbox"
)

// The values of the attribute outbox.outcome.
const (
	outcomeDone     = "done"
	outcomeRetry    = "retry"    // failed; it is tried again
	outcomeDead     = "dead"     // given up
	outcomeDeferred = "deferred" // asked for again later, without a failure
	outcomeReleased = "released" // cut off by the shutdown; another node takes it
)

// rules are what the engine decides an outcome by and what an interceptor cannot
// see.
type rules struct {
	maxAttempts     int
	deferUnroutable bool
}

func rulesOf(mode outbox.Mode) rules {
	var o outbox.DispatchOptions
	switch m := mode.(type) {
	case outbox.SingleNode:
		o = m.Dispatch
	case outbox.MultiNode:
		o = m.Dispatch
	case outbox.Ordered:
		o.MaxAttempts = 1
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = outbox.DefaultMaxAttempts
	}
	return rules{maxAttempts: o.MaxAttempts, deferUnroutable: o.OnUnroutable != outbox.Unroutable{}}
}

// outcome follows the engine's decision in its order.
func (r rules) outcome(ctx context.Context, attempts int, res outbox.Result, err error) string {
	var unrecoverable *outbox.UnrecoverableError
	var panicked *outbox.PanicError
	switch {
	case err == nil:
		if _, again := res.RetryAfter(); again {
			return outcomeDeferred
		}
		if _, dead := res.Dead(); dead {
			return outcomeDead
		}
		return outcomeDone
	case errors.Is(err, outbox.ErrUnroutable):
		if r.deferUnroutable {
			return outcomeDeferred
		}
		return outcomeDead
	case errors.As(err, &unrecoverable):
		return outcomeDead
	// The listeners' context is cancelled by the shutdown alone; a
	// ListenerTimeout is an exceeded deadline. A panic is the listener's own.
	case errors.Is(ctx.Err(), context.Canceled) && !errors.As(err, &panicked):
		return outcomeReleased
	case attempts+1 >= r.maxAttempts:
		return outcomeDead
	default:
		return outcomeRetry
	}
}

package outbox

import (
	"context"
	"errors"
	"log/slog"
)

// OutcomeOf returns the outcome of a delivery, for interceptors that report it, such
// as tracing. ctx and env are those of the interceptor; res and err are what the next
// listener returned. The stored outcome may differ: interceptors further out may
// change the result, and if a shutdown cancels the listeners before those return, a
// failure becomes [OutcomeReleased]. [OutcomeDone] also stands for
// [OutcomeDelete] and for an event that the listener completed itself. [OutcomeSplit]
// is that of an event with several listeners of which some are not done; err has the
// failures.
// If ctx does not come from a dispatcher, the defaults of [DispatchOptions] apply.
func OutcomeOf(ctx context.Context, env Envelope, res Result, err error) Outcome {
	if c := deliveryOf(ctx); c != nil {
		return c.d.outcome(c.dl, env.Attempts, res, causeOf(err))
	}
	return outcomeOf(ctx, DispatchOptions{}.withDefaults(), env.Attempts, res, causeOf(err))
}

// outcome is what an answer means for a delivery after that many earlier attempts.
func (d *Dispatcher) outcome(dl *delivery, attempts int, res Result, c cause) Outcome {
	switch {
	case d.track.isCompleted(dl):
		return OutcomeDone
	case dl.answers.stand(res, c):
		return d.splitOutcome(dl)
	default:
		return outcomeOf(d.listenerCtx, d.opts, attempts, res, c)
	}
}

// ListenerOf returns the name of the one listener that the delivery of ctx is for, for
// interceptors that report it. It is empty in the delivery of an event to all of its
// listeners; see [Named].
func ListenerOf(ctx context.Context) string {
	if c := deliveryOf(ctx); c != nil {
		return c.dl.listener()
	}
	return ""
}

// outcomeOf decides the outcome of a delivery after that many earlier attempts.
// listeners is the parent of the listeners' contexts.
func outcomeOf(listeners context.Context, opts DispatchOptions, attempts int, res Result, c cause) Outcome {
	if c.err != nil {
		return outcomeOnError(listeners, opts, attempts, c)
	}
	if _, again := res.RetryAfter(); again {
		return OutcomeDeferred
	}
	if _, dead := res.Dead(); dead {
		return OutcomeDead
	}
	return OutcomeDone
}

func outcomeOnError(listeners context.Context, opts DispatchOptions, attempts int, c cause) Outcome {
	switch {
	case c.unroutable:
		if opts.OnUnroutable.deferFor > 0 {
			return OutcomeDeferred
		}
		return OutcomeDead
	case c.unrecoverable:
		return OutcomeDead
	case c.released || cutOff(listeners, c):
		return OutcomeReleased
	case attempts+1 >= opts.MaxAttempts:
		return OutcomeDead
	default:
		return OutcomeRetry
	}
}

// cutOff reports whether a delivery failed because the shutdown cancelled the
// listeners. A ListenerTimeout is not that: it is an exceeded deadline. A panic
// counts as the listener's failure.
func cutOff(listeners context.Context, c cause) bool {
	return errors.Is(listeners.Err(), context.Canceled) && c.panicked == nil
}

func loggerFrom(ctx context.Context) *slog.Logger {
	if c := deliveryOf(ctx); c != nil {
		return c.d.logger()
	}
	return slog.Default()
}

func (d *Dispatcher) logger() *slog.Logger { return d.log }

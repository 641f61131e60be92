package outbox

import (
	"context"
	"errors"
	"log/slog"
)

// OutcomeOf is what the dispatcher makes of a listener's result, for interceptors
// that report it, as tracing does. ctx is the context that the interceptor was
// given, env its envelope, res and err what the listener behind it returned.
// Interceptors further out may still change the result, and a shutdown that
// cancels the listeners before those return makes [OutcomeReleased] of a failure.
// [OutcomeDone] stands for [OutcomeDelete] too. With a context that does not come
// from a dispatcher it goes by the defaults of [DispatchOptions].
func OutcomeOf(ctx context.Context, env Envelope, res Result, err error) Outcome {
	if d := dispatcherOf(ctx); d != nil {
		return outcomeOf(d.listenerCtx, d.opts, env.Attempts, res, causeOf(err))
	}
	return outcomeOf(ctx, DispatchOptions{}.withDefaults(), env.Attempts, res, causeOf(err))
}

// outcomeOf decides what becomes of an event that has had so many attempts.
// listeners is the base of the listeners' contexts.
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
	case cutOff(listeners, c):
		return OutcomeReleased
	case attempts+1 >= opts.MaxAttempts:
		return OutcomeDead
	default:
		return OutcomeRetry
	}
}

// cutOff reports whether a delivery failed because the shutdown cancelled the
// listeners; a ListenerTimeout is an exceeded deadline. A panic is the
// listener's own.
func cutOff(listeners context.Context, c cause) bool {
	return errors.Is(listeners.Err(), context.Canceled) && c.panicked == nil
}

type dispatcherKey struct{}

// withDispatcher lets interceptors ask the dispatcher that calls them.
func withDispatcher(ctx context.Context, d *Dispatcher) context.Context {
	return context.WithValue(ctx, dispatcherKey{}, d)
}

// dispatcherOf is the dispatcher whose delivery ctx belongs to, or nil.
func dispatcherOf(ctx context.Context) *Dispatcher {
	d, _ := ctx.Value(dispatcherKey{}).(*Dispatcher)
	return d
}

func loggerFrom(ctx context.Context) *slog.Logger {
	if d := dispatcherOf(ctx); d != nil {
		return d.log
	}
	return slog.Default()
}

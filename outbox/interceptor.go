package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// Interceptor is middleware around every delivery, for concerns that listeners
// share: audit, tracing, metrics. An interceptor gets the next listener of the chain
// and returns a listener that may call it. The outermost interceptor's error decides
// the outcome; see [OutcomeOf]. Interceptors run in the order given before the
// listener, and in reverse order after it. The listener is looked up after the last
// interceptor, so interceptors see unroutable events too, as the error
// [ErrUnroutable]. A panic of the listener, or of an interceptor further in, reaches
// an interceptor as a [*PanicError].
type Interceptor func(next Listener) Listener

// Before makes an interceptor that runs fn before the delivery. An error is a
// failed delivery and skips the rest of the chain; interceptors further out get it.
func Before(fn func(ctx context.Context, env Envelope) error) Interceptor {
	if fn == nil {
		return nil
	}
	return func(next Listener) Listener {
		return ListenerFunc(func(ctx context.Context, env Envelope) error {
			if err := fn(ctx, env); err != nil {
				return err
			}
			return next.OnEvent(ctx, env)
		})
	}
}

// After makes an interceptor that runs fn after the delivery, with the delivery's error
// or nil; [Defer] is an error too, see [OutcomeOf]. fn cannot change the outcome: a panic
// of fn is logged and ignored.
func After(fn func(ctx context.Context, env Envelope, err error)) Interceptor {
	if fn == nil {
		return nil
	}
	return func(next Listener) Listener {
		return ListenerFunc(func(ctx context.Context, env Envelope) error {
			err := next.OnEvent(ctx, env)
			runAfter(ctx, env, err, fn)
			return err
		})
	}
}

func runAfter(ctx context.Context, env Envelope, err error, fn func(context.Context, Envelope, error)) {
	defer func() {
		if r := recover(); r != nil {
			loggerFrom(ctx).Error("outbox: an After interceptor panicked", logKeyEventID, env.EventID,
				logKeyError, fmt.Sprint(r), logKeyStack, string(debug.Stack()))
		}
	}()
	fn(ctx, env, err)
}

func loggerFrom(ctx context.Context) *slog.Logger {
	if c := deliveryOf(ctx); c != nil {
		return c.log
	}
	return slog.Default()
}

// OutcomeOf returns the outcome of a delivery, for interceptors that report the outcome, such as
// tracing. ctx and env are the arguments of the interceptor; err is the error of the next listener.
// The stored outcome may differ: interceptors further out may change the error, and if a shutdown
// cancels the listeners before these interceptors return, a failure becomes [OutcomeReleased].
// [OutcomeDone] also stands for [OutcomeDelete] and for an event that the listener completed
// itself. [OutcomeSplit] is the outcome of an event with several listeners of which some are not
// done; err is a [*ListenersError]. If ctx does not come from a dispatcher, the defaults of
// [DispatchOptions] apply.
func OutcomeOf(ctx context.Context, env Envelope, err error) Outcome {
	if c := deliveryOf(ctx); c != nil {
		return c.d.outcome(c.dl, c.dl.listener(), env.Attempts, causeOf(err))
	}
	opts := DispatchOptions{}.withDefaults()
	return outcomeOf(ctx, opts, &Rules{MaxAttempts: opts.MaxAttempts}, env.Attempts, causeOf(err))
}

// ListenerOf returns the name of the listener that the delivery of ctx is for, for interceptors
// that report the name. The name is empty in the delivery of an event to all of its listeners; see
// [Named].
func ListenerOf(ctx context.Context) string {
	if c := deliveryOf(ctx); c != nil {
		return c.dl.listener()
	}
	return ""
}

// chain puts the interceptors around the router, and reports interceptors that cannot be used.
// Each level is guarded, so that a panic becomes an error for the levels around it.
func chain(v *validator, interceptors []Interceptor, routes ListenerRegistry) Listener {
	own, _ := routes.(*Registry)
	next := Listener(guard{router{routes, own}})
	for i := len(interceptors) - 1; i >= 0; i-- {
		if interceptors[i] == nil {
			v.add(fmt.Sprintf("Interceptors[%d]", i), "is nil")
			continue
		}
		l := interceptors[i](next)
		if nilness.IsNil(l) {
			v.add(fmt.Sprintf("Interceptors[%d]", i), "returned no listener")
			continue
		}
		next = guard{l}
	}
	return next
}

// guard turns a panic of the next listener into an error, and replaces an error whose
// methods panic.
type guard struct{ next Listener }

func (g guard) OnEvent(ctx context.Context, env Envelope) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError(r)
		}
	}()
	return sound(g.next.OnEvent(ctx, env))
}

// router is the innermost listener: it calls the event's registered listener.
type router struct {
	routes ListenerRegistry
	own    *Registry // routes, unless it has another type
}

// find looks up the listener of an event, and the place of the pair: zero if it is not known.
func (r router) find(env *Envelope) (l Listener, place int32, found bool) {
	if r.own == nil {
		l, found = r.routes.ListenerFor(env.AggregateType, env.EventType)
		return l, 0, found
	}
	own, found := r.own.find(env.AggregateType, env.EventType)
	return own.Listener, own.place, found
}

func (r router) OnEvent(ctx context.Context, env Envelope) error {
	l, place, ok := r.find(&env)
	if !ok || l == nil {
		return unroutable("no listener", env)
	}
	c := deliveryOf(ctx)
	if c != nil {
		atomic.StoreInt32(&c.dl.place, place)
	}
	if c != nil && c.dl.only != nil {
		several, _ := l.(listeners)
		if l = several.named(c.dl.only.listener); l == nil {
			return unroutable(fmt.Sprintf("no listener with the name %q", c.dl.only.listener), env)
		}
	}
	return l.OnEvent(ctx, env)
}

func unroutable(missing string, env Envelope) error {
	return fmt.Errorf("%w: %s is registered for %s/%s: register one, here or in another process; a dead letter can then be replayed",
		ErrUnroutable, missing, env.AggregateType, env.EventType)
}

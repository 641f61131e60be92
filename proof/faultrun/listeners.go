package faultrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/checker"
)

var calls atomic.Int64

// listeners are the listeners of all types of events.
func (n *node) listeners() []outbox.Binding {
	bindings := []outbox.Binding{
		on(Plain, outbox.ListenerFunc(n.plain(""))),
		on(Once, outbox.ListenerFunc(n.plain(""))),
		on(Brief, outbox.ListenerFunc(n.plain("")), outbox.Rules{Expires: n.Expires, DropExpired: n.DropExpired}),
		on(Down, outbox.ListenerFunc(n.plain(""))),
		on(Reminder, outbox.ListenerFunc(n.plain(""))),
		on(Latest, outbox.ListenerFunc(n.plain(""))),
		on(Bounded, outbox.ListenerFunc(n.plain("")), outbox.Rules{Concurrency: n.Bounded, Fleetwide: n.Bounded > 0}),
		on(KeyBounded, outbox.ListenerFunc(n.plain("")), outbox.Rules{KeyConcurrency: n.KeyBounded, Fleetwide: n.KeyBounded > 0}),
		on(Endless, outbox.ListenerFunc(n.plain("")), n.endless()),
		on(Ledger, n.recorded("", n.handle())),
		on(Inbox, outbox.ListenerFunc(n.inbox)),
		on(Batch, outbox.BatchListener(outbox.BatchOptions{Size: 20, Wait: 2 * time.Millisecond}, n.batch)),
	}
	if !n.Deaf {
		bindings = append(bindings, on(Rare, outbox.ListenerFunc(n.plain(""))))
	}
	for _, name := range Names {
		bindings = append(bindings, on(Many, outbox.ListenerFunc(n.plain(name)), outbox.Named(name)))
	}
	return bindings
}

// endless are the rules of events of type [Endless]. In order there is one attempt, and no such event.
func (s Spec) endless() outbox.Rules {
	if s.Mode == "ordered" {
		return outbox.Rules{}
	}
	return outbox.Rules{MaxAttempts: outbox.Endless}
}

func on(event outbox.EventType, l outbox.Listener, opts ...outbox.BindingOption) outbox.Binding {
	return outbox.On("Thing", event, l, opts...)
}

// chance is a number below 100 that depends only on the seed and on the arguments.
func (s Spec) chance(of ...any) int {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, s.Seed, of)
	return int(h.Sum64() >> 33 % 100)
}

// result is the result of a delivery. The result depends on the event, the listener and the number
// of failed attempts.
func (n *node) result(env outbox.Envelope, listener string) string {
	if n.crash != nil {
		return n.crash.result(env, listener)
	}
	switch c := n.chance(env.EventID, listener, env.Attempts); {
	case c < n.Fail, env.EventType == Endless && c < 80:
		return checker.Failed
	case c < n.Fail+n.Later && n.chance("later", env.EventID, time.Now().UnixNano()) < 50:
		return checker.Later
	case env.EventType == Down && n.chance("down", env.EventID, time.Now().UnixNano()) < n.Down:
		return checker.Paused
	case c >= 100-n.Bury:
		return checker.Buried
	default:
		return checker.Done
	}
}

// begin records the beginning of a delivery.
func (n *node) begin(env outbox.Envelope, listener string) checker.Record {
	r := checker.Record{Op: checker.OpBegan, Event: env.EventID, Listener: listener, Attempt: env.Attempts, Call: calls.Add(1), Ahead: time.Duration(n.offset.Load())}
	if env.EventType == Reminder || env.EventType == Latest {
		r.Content = contentOf(env)
	}
	n.log.Add(r)
	return r
}

// delivery records the beginning of a delivery; the function end records the end.
func (n *node) delivery(env outbox.Envelope, listener string) (end func(result string)) {
	r := n.begin(env, listener)
	return func(result string) {
		r.Op, r.Result = checker.OpEnded, result
		n.log.Add(r)
	}
}

// linger makes a few listeners stubborn, and has a few listeners hang. linger reports false when
// the context ends meanwhile.
func (n *node) linger(ctx context.Context, env outbox.Envelope) bool {
	if n.Stubborn > 0 && n.chance("stubborn", n.Process, env.EventID, env.Attempts) < 3 && n.stubborn.Add(1) <= int64(n.Stubborn) {
		pause(context.Background(), n.Linger)
	}
	if n.Hang > 0 && n.chance("hang", n.Process, env.EventID, env.Attempts) < 3 && n.hung.Add(1) <= int64(n.Hang) {
		<-ctx.Done()
		return false
	}
	return true
}

// work takes the time of a listener. work reports false when the context ends first.
func (n *node) work(ctx context.Context, env outbox.Envelope) bool {
	if n.Slow == 0 {
		return ctx.Err() == nil
	}
	return pause(ctx, n.Slow*time.Duration(n.chance("slow", env.EventID, env.Attempts))/100)
}

var errListener = errors.New("the listener failed")

// errNotASCII is a failure whose text the database refuses in runs with Spec.Refused.
var errNotASCII = errors.New("the listener failed: " + refusedText)

// failure is the error of a listener that fails.
func (n *node) failure(of ...any) error {
	if n.Refused && n.chance("text", of) < 50 {
		return errNotASCII
	}
	return errListener
}

// answer is the error that a listener returns for a result.
func (n *node) answer(env outbox.Envelope, result string) error {
	switch result {
	case checker.Later:
		return outbox.Defer(5 * time.Millisecond)
	case checker.Paused:
		return outbox.PauseFor(n.PauseFor, errListener)
	case checker.Buried:
		return outbox.Dead(errors.New("the listener gave it up"))
	case checker.Done:
		return nil
	default:
		return n.failure(env.EventID, env.Attempts)
	}
}

func (n *node) plain(listener string) func(ctx context.Context, env outbox.Envelope) error {
	return func(ctx context.Context, env outbox.Envelope) error {
		end := n.delivery(env, listener)
		result := n.result(env, listener)
		if !n.linger(ctx, env) || !n.work(ctx, env) {
			result = checker.Dropped
		}
		end(result)
		return n.answer(env, result)
	}
}

// worked is when the function of a handler returned; the context of the delivery has it.
type worked struct{ at time.Time }

type workedKey struct{}

// recorded records the deliveries to a handler. A delivery that succeeds has ended before the
// COMMIT of the handler: after the COMMIT another process may begin with the next event of the key.
func (n *node) recorded(listener string, inner outbox.Listener) outbox.Listener {
	return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		r := n.begin(env, listener)
		var w worked
		err := inner.OnEvent(context.WithValue(ctx, workedKey{}, &w), env)
		r.Op, r.Result = checker.OpEnded, checker.Failed
		if err == nil {
			r.At, r.Result = w.at, checker.Done
		}
		n.log.Add(r)
		return err
	})
}

// handle is the listener of events of type Ledger, through pgx if pgx is the driver.
func (n *node) handle() outbox.Listener {
	if n.pools.pgx == nil {
		return n.adapter.Handle(func(ctx context.Context, tx *sql.Tx, env outbox.Envelope) error { return n.ledger(ctx, tx, env) })
	}
	adapter := must(outboxpgx.New(n.pools.pgx, n.ob.Writer()))
	return adapter.Handle(func(ctx context.Context, tx pgx.Tx, env outbox.Envelope) error {
		return n.ledger(ctx, outboxpgx.Execer(tx), env)
	})
}

// ledger has an effect in the transaction that completes the event.
func (n *node) ledger(ctx context.Context, tx outbox.Execer, env outbox.Envelope) error {
	// On SQLite all others would wait for this transaction.
	if n.Driver != "sqlite" && !n.linger(ctx, env) || !n.work(ctx, env) {
		return ctx.Err()
	}
	if err := n.effect(ctx, tx, env.EventID, ""); err != nil {
		return err
	}
	if n.chance(env.EventID, "", env.Attempts) < n.Fail {
		return n.failure(env.EventID, env.Attempts)
	}
	if w, ok := ctx.Value(workedKey{}).(*worked); ok {
		w.at = time.Now()
	}
	return nil
}

// inbox has an effect in a separate transaction, which the inbox guards.
func (n *node) inbox(ctx context.Context, env outbox.Envelope) error {
	end := n.delivery(env, "")
	err := n.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := n.box.Once(ctx, tx, "faultrun", env.EventID, func(ctx context.Context) error {
			return n.effect(ctx, tx, env.EventID, "")
		})
		return err
	})
	result := n.result(env, "")
	if err != nil {
		result = checker.Failed
	}
	end(result)
	return n.answer(env, result)
}

func (n *node) batch(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
	errs := make([]error, len(batch))
	ends := make([]func(string), len(batch))
	for i, env := range batch {
		ends[i] = n.delivery(env, "")
	}
	whole := n.linger(ctx, batch[0]) && n.work(ctx, batch[0])
	for i, env := range batch {
		result := n.result(env, "")
		if !whole {
			result = checker.Dropped
		}
		ends[i](result)
		errs[i] = n.answer(env, result)
	}
	return errs, nil
}

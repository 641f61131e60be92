package outbox

import (
	"context"
	"fmt"
	"time"
)

// BatchOptions say how a batch listener gathers events.
type BatchOptions struct {
	// Size is how many events one call gets at most. Required.
	Size int
	// Wait is how long the first event of a batch waits for others, unless the batch
	// is full before. While all calls that may run at once are under way, a batch
	// waits for one of them to end, and gathers meanwhile. Defaults to 0: a call gets
	// what is there.
	Wait time.Duration
	// Concurrency is how many calls run at once. Defaults to 1. Size times
	// Concurrency is at most [MaxWorkers].
	Concurrency int
}

// Event is an event of a [Topic]: its decoded payload and its envelope.
type Event[T any] struct {
	Payload  T
	Envelope Envelope
}

// BatchListener makes a listener that gets events in batches. Register it for one pair
// of types or for several: their events then come in the same batches.
//
// fn gets the events in no particular order. It returns one result for each, in the
// order of the batch; [ResultOf] makes a result of an error. Nil results mean that all
// events are done. An error or a panic of fn is a failed delivery of each event of the
// batch. An event is alone in its batch on its last attempt, so that it does not go
// DEAD for the failure of another, and after its process died.
//
// The context ends after the ListenerTimeout, counted from the call, or when the outbox
// shuts down. It belongs to no single delivery, so [Writer.Complete] refuses it.
// Interceptors run around each event, and a call of the listener's OnEvent from
// elsewhere than a dispatcher's worker is a batch of one. Under [Ordered] every batch
// is.
func BatchListener(opts BatchOptions, fn func(ctx context.Context, batch []Envelope) ([]Result, error)) Listener {
	if fn == nil {
		return nil
	}
	return newBatchListener(opts, nil, func(ctx context.Context, members []*batchMember) ([]Result, error) {
		batch := make([]Envelope, len(members))
		for i, m := range members {
			batch[i] = m.env
		}
		return fn(ctx, batch)
	})
}

// ListenBatch makes a binding for fn, which gets the topic's events in batches; see
// [BatchListener]. An event whose payload does not decode is dead at once and in no
// batch.
func (t Topic[T]) ListenBatch(opts BatchOptions, fn func(ctx context.Context, batch []Event[T]) ([]Result, error)) Binding {
	if fn == nil {
		return Binding{AggregateType: t.aggregate, EventType: t.event}
	}
	decode := func(env Envelope) (any, error) { return t.Decode(env) }
	return On(t.aggregate, t.event, newBatchListener(opts, decode, func(ctx context.Context, members []*batchMember) ([]Result, error) {
		batch := make([]Event[T], len(members))
		for i, m := range members {
			batch[i].Payload, _ = m.payload.(T) // nil when T is an interface and the payload null
			batch[i].Envelope = m.env
		}
		return fn(ctx, batch)
	}))
}

// batchListener is a listener whose events are delivered in batches: by the batcher
// that a dispatcher has for it, else one by one. It is immutable, so several outboxes
// may share it.
type batchListener struct {
	opts    BatchOptions
	problem error                           // with the options; nil: none
	decode  func(env Envelope) (any, error) // nil: the payload is not decoded
	fn      func(ctx context.Context, members []*batchMember) ([]Result, error)
}

// batchMember is one event of a batch, and what became of it.
type batchMember struct {
	dl      *delivery // nil: the listener was called from elsewhere
	env     Envelope
	payload any

	res Result
	err error
}

func newBatchListener(opts BatchOptions, decode func(Envelope) (any, error), fn func(context.Context, []*batchMember) ([]Result, error)) *batchListener {
	opts.Concurrency = defaultTo(opts.Concurrency, 1)
	return &batchListener{opts: opts, problem: opts.Validate(), decode: decode, fn: fn}
}

// Validate returns the problems of all fields, each as a [FieldError], or nil. A batch
// listener is checked when it is registered, so this is for code that makes one later.
func (o BatchOptions) Validate() error {
	v := validator{what: "BatchOptions"}
	switch {
	case o.Size < 1 || o.Size > MaxWorkers:
		v.add("Size", fmt.Sprintf("is %d; it must be between 1 and %d", o.Size, MaxWorkers))
	case o.Concurrency > MaxWorkers/o.Size:
		v.add("Concurrency", fmt.Sprintf("is %d, with a Size of %d; the limit of their product is %d", o.Concurrency, o.Size, MaxWorkers))
	}
	v.duration("Wait", o.Wait)
	v.notNegative("Concurrency", o.Concurrency)
	return v.err()
}

// inHand is how many deliveries may be under way: the calls, and a batch that gathers.
func (l *batchListener) inHand() int { return l.opts.Size * (l.opts.Concurrency + 1) }

// OnEvent lets the event join a batch, and returns its result of that.
func (l *batchListener) OnEvent(ctx context.Context, env Envelope) (Result, error) {
	if l.problem != nil { // a registry of the user's own took it all the same
		return Result{}, l.problem
	}
	m := &batchMember{env: env}
	if l.decode != nil {
		var err error
		if m.payload, err = l.decode(env); err != nil {
			return Result{}, Unrecoverable(err)
		}
	}
	if c := deliveryOf(ctx); c != nil && c.dl.batcher != nil && c.dl.batcher.l == l {
		m.dl = c.dl
		c.dl.batcher.join(m)
	} else {
		l.call(ctx, []*batchMember{m})
	}
	return m.res, m.err
}

// call runs the function and gives each member its result. A runtime.Goexit of the
// function, as a failed test assertion does, fails the batch.
func (l *batchListener) call(ctx context.Context, members []*batchMember) {
	var results []Result
	err := errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = panicError(r)
		}
		for i, m := range members {
			if m.err = err; err == nil && results != nil {
				m.res, m.err = results[i].split()
			}
		}
	}()
	results, err = l.fn(context.WithValue(ctx, batchKey{}, true), members)
	if err == nil && results != nil && len(results) != len(members) {
		err = fmt.Errorf("the batch function returned %d results for %d events; return one for each event, in the order of the batch, or nil if all are done",
			len(results), len(members))
	}
}

// batchKey marks the context of a call.
type batchKey struct{}

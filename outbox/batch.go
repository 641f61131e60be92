package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// BatchOptions configure how a batch listener gathers events.
type BatchOptions struct {
	// Size is how many events a call gets at most. Required.
	Size int
	// Wait is how long the first event of a batch waits for others, unless the batch
	// is full before. While all calls that may run at once are under way, a batch
	// waits until a call ends, and gathers meanwhile. Defaults to 0: a call gets the
	// events that are there.
	Wait time.Duration
	// Concurrency is how many calls run at once. Defaults to 1. Size times
	// Concurrency is at most 10,000.
	Concurrency int
}

// BatchListener makes a listener that gets events in batches. Register it for a pair
// of types or for several pairs: their events then come in the same batches.
//
// fn gets the events in no particular order. fn returns an error for each event, in the
// order of the batch, each as if a [Listener] had returned it; a nil slice means that all
// events are done. The second error, or a panic of fn, is the error of each event of the
// batch. An event is alone in the batch in two cases: on the last attempt, so that it does
// not go DEAD for the failure of another event, and after the event's process died.
//
// The context ends after the ListenerTimeout, counted from the call, or when the outbox
// shuts down. The context belongs to no single delivery, so [Writer.Complete] refuses it.
// Interceptors run around each event. A call of the listener's OnEvent from elsewhere
// than a dispatcher's worker is a batch of a single event. Under [Ordered] every batch
// has a single event.
func BatchListener(opts BatchOptions, fn func(ctx context.Context, batch []Envelope) ([]error, error)) Listener {
	if fn == nil {
		return nil
	}
	return newBatchListener(opts, nil, func(ctx context.Context, members []*batchMember) ([]error, error) {
		batch := make([]Envelope, len(members))
		for i, m := range members {
			batch[i] = m.env
		}
		return fn(ctx, batch)
	})
}

// batchListener is a listener whose events are delivered in batches: by the batcher
// that a dispatcher has for it, else one by one. A batchListener is immutable, so
// several outboxes may share it.
type batchListener struct {
	opts    BatchOptions
	problem error                           // with the options; nil: no problem
	decode  func(env Envelope) (any, error) // nil: the payload is not decoded
	fn      func(ctx context.Context, members []*batchMember) ([]error, error)
}

// batchMember is an event of a batch, and the error of its delivery.
type batchMember struct {
	dl      *delivery // nil: the listener was called from elsewhere
	env     Envelope
	payload any

	err error
}

func newBatchListener(opts BatchOptions, decode func(Envelope) (any, error), fn func(context.Context, []*batchMember) ([]error, error)) *batchListener {
	opts.Concurrency = defaultTo(opts.Concurrency, 1)
	return &batchListener{opts: opts, problem: opts.Validate(), decode: decode, fn: fn}
}

// Validate returns the problems of all fields, each as a [FieldError], or nil. A batch
// listener is checked when it is registered, so Validate is for code that makes the
// listener later.
func (o BatchOptions) Validate() error {
	v := validator{what: "BatchOptions"}
	switch {
	case o.Size < 1 || o.Size > maxWorkers:
		v.add("Size", fmt.Sprintf("is %d; it must be between 1 and %d", o.Size, maxWorkers))
	case o.Concurrency > maxWorkers/o.Size:
		v.add("Concurrency", fmt.Sprintf("is %d, with a Size of %d; the limit of their product is %d", o.Concurrency, o.Size, maxWorkers))
	}
	v.duration("Wait", o.Wait)
	v.notNegative("Concurrency", o.Concurrency)
	return v.err()
}

// inHand is how many deliveries may be under way: the calls, and a batch that gathers.
func (l *batchListener) inHand() int { return l.opts.Size * (l.opts.Concurrency + 1) }

// OnEvent lets the event join a batch, and returns the error that the batch has for it.
func (l *batchListener) OnEvent(ctx context.Context, env Envelope) error {
	if l.problem != nil { // a user's registry took the listener all the same
		return l.problem
	}
	m := &batchMember{env: env}
	if l.decode != nil {
		var err error
		if m.payload, err = l.decode(env); err != nil {
			return undecoded(env, err)
		}
	}
	if c := deliveryOf(ctx); c != nil && c.dl.batcher != nil && c.dl.batcher.l == l {
		m.dl = c.dl
		c.dl.batcher.join(m)
	} else {
		l.call(ctx, []*batchMember{m})
	}
	return m.err
}

// call runs the function and sets the error of each member. A runtime.Goexit of the
// function, as a failed test assertion does, fails the batch.
func (l *batchListener) call(ctx context.Context, members []*batchMember) {
	var errs []error
	err := errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = panicError(r)
		}
		for i, m := range members {
			if m.err = err; err == nil && errs != nil {
				m.err = errs[i]
			}
		}
	}()
	errs, err = l.fn(context.WithValue(ctx, batchKey{}, true), members)
	if err == nil && errs != nil && len(errs) != len(members) {
		err = fmt.Errorf("the batch function returned %d errors for %d events; return one for each event, in the order of the batch, or nil if all are done",
			len(errs), len(members))
	}
}

// batchKey marks the context of a call.
type batchKey struct{}

// batcher delivers the events of a batch listener for a dispatcher. Each delivery has
// a separate goroutine, in which the listener joins the open batch and waits for the
// error. So the number of workers does not limit a batch, and no worker waits for a
// batch. The number of goroutines is bounded. Further deliveries wait here, without a
// goroutine, and count as if they were still in their queue.
//
//	worker ──▶ waiting ──▶ goroutine: interceptors, join ──▶ open batch ──▶ call
type batcher struct {
	host  batchHost
	l     *batchListener
	ctx   context.Context // of the listeners
	quit  <-chan struct{}
	abort <-chan struct{}
	calls chan struct{} // holds a token for each call under way

	mu      sync.Mutex
	waiting []*delivery
	running int        // goroutines of deliveries
	open    *openBatch // the batch that the next delivery joins; nil: a new batch
}

// batchHost is the part of a dispatcher that a batcher needs.
type batchHost interface {
	// moved says that a delivery's n events wait here from now on, or no more if n is negative.
	moved(dl *delivery, n int64)
	// startWorker starts a goroutine that delivers.
	startWorker(take func() *delivery)
	mayDeliver(dl *delivery) bool
	rulesOf(dl *delivery) *Rules
	isExpired(dl *delivery, rules *Rules) bool
}

// openBatch is a batch, from the first event until the errors of all events are set.
type openBatch struct {
	members []*batchMember // guarded by the batcher's mu until the batch is sealed
	full    chan struct{}  // closed: no more join
	done    chan struct{}  // closed: the errors of all members are set
}

// take takes a delivery from a worker.
func (b *batcher) take(dl *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, dl)
	b.host.moved(dl, dl.length())
	if b.running < b.l.inHand() {
		b.running++
		b.host.startWorker(b.next)
	}
}

// next is the next delivery for a goroutine; nil ends the goroutine. When the dispatcher cuts
// the listeners off, the deliveries that wait are given back.
func (b *batcher) next() *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || isClosed(b.abort) {
		b.running--
		return nil
	}
	return b.pop()
}

// pop is called with mu held, and not without a waiting delivery.
func (b *batcher) pop() *delivery {
	dl := b.waiting[0]
	b.waiting[0], b.waiting = nil, b.waiting[1:]
	b.host.moved(dl, -dl.length())
	return dl
}

// takeLeft takes the deliveries that wait.
func (b *batcher) takeLeft() (left []*delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 {
		left = append(left, b.pop().rest()...)
	}
	return left
}

// join adds an event to the open batch and waits for the event's error.
func (b *batcher) join(m *batchMember) {
	b.mu.Lock()
	o, alone := b.open, b.alone(m.dl)
	if o == nil || alone {
		o = &openBatch{full: make(chan struct{}), done: make(chan struct{})}
		go b.run(o)
	}
	o.members = append(o.members, m)
	switch {
	case alone:
		close(o.full)
	case len(o.members) == b.l.opts.Size:
		close(o.full)
		b.open = nil
	default:
		b.open = o
	}
	b.mu.Unlock()
	<-o.done
}

// alone reports whether an event has a batch to itself, which waits for no other event: on
// the last attempt, so that the event does not die of another event's failure, and when
// the event was taken over, because it may kill the process.
func (b *batcher) alone(dl *delivery) bool {
	attempts := dl.env.Attempts
	return dl.takeover || attempts > 0 && b.host.rulesOf(dl).isLast(attempts)
}

// run is a batch's goroutine. The goroutine ends before the deliveries of the members do.
func (b *batcher) run(o *openBatch) {
	defer close(o.done)
	if !b.await(o) {
		for _, m := range o.members {
			m.err = b.ctx.Err()
		}
		return
	}
	defer func() { <-b.calls }()
	held, limit := b.held(o)
	if len(held) == 0 {
		return
	}
	ctx := b.ctx
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	b.l.call(ctx, held)
}

// held are the members that may be delivered now, and the shortest of their timeouts.
func (b *batcher) held(o *openBatch) (held []*batchMember, limit time.Duration) {
	for _, m := range o.members {
		switch rules := b.host.rulesOf(m.dl); {
		case !b.host.mayDeliver(m.dl):
			m.err = errReleased
		case b.host.isExpired(m.dl, rules):
			m.err = rules.expiredError()
		default:
			held = append(held, m)
			if t := rules.ListenerTimeout; t > 0 && (limit == 0 || t < limit) {
				limit = t
			}
		}
	}
	return held, limit
}

// await waits until a batch is complete and the call may begin, and seals the batch.
// False: the shutdown cut the batch off. A draining dispatcher does not wait for more events.
func (b *batcher) await(o *openBatch) bool {
	timer := time.NewTimer(b.l.opts.Wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-o.full:
	case <-b.quit:
	}
	select {
	case b.calls <- struct{}{}:
	case <-b.ctx.Done():
	}
	b.seal(o)
	return b.ctx.Err() == nil
}

// seal ends the gathering of a batch.
func (b *batcher) seal(o *openBatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == o {
		b.open = nil
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Outbox is the whole of it: writer, dispatcher, poller and purger, as the mode
// has them. Make one with [New], register listeners, start it, write through an
// adapter, close it. It is safe for concurrent use.
type Outbox struct {
	db         DB
	store      Store
	writer     *Writer
	dead       *DeadLetters
	registry   *Registry // nil when Config.Registry is the user's own kind
	dispatcher *Dispatcher
	poller     *Poller
	purger     *Purger
	metrics    Metrics
	clock      Clock
	mode       Mode
	warnIdle   func()

	mu      sync.Mutex
	state   lifecycle
	closing sync.Once
	closed  chan struct{}
	err     error // of Close, once closed is closed
}

// Writer writes events in a transaction that the context carries. Adapters take
// it too.
func (o *Outbox) Writer() *Writer { return o.writer }

// DeadLetters looks at events that were given up and replays them.
func (o *Outbox) DeadLetters() *DeadLetters { return o.dead }

// Register adds listeners. After Start it fails with [ErrStarted], so that no
// event can be delivered before its listener is there; a second listener for a
// pair of types is [ErrDuplicateListener].
func (o *Outbox) Register(bindings ...Binding) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.state {
	case running:
		return fmt.Errorf("outbox: registering a listener: %w", ErrStarted)
	case stopped:
		return fmt.Errorf("outbox: registering a listener: %w", ErrClosed)
	case created:
	}
	if o.registry == nil {
		return &FieldError{Field: "Config.Registry", Problem: "is not an *outbox.Registry; register listeners there"}
	}
	return o.registry.Register(bindings...)
}

// Start starts what the mode has. ctx bounds the start alone. Starting twice is
// harmless; after Close it is [ErrClosed].
func (o *Outbox) Start(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.state {
	case running:
		return nil
	case stopped:
		return ErrClosed
	case created:
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: starting: %w", err)
	}
	if o.registry != nil && o.registry.Len() == 0 && o.dispatcher != nil {
		o.warnIdle()
	}
	o.state = running
	var errs []error
	if o.dispatcher != nil {
		errs = append(errs, o.dispatcher.Start(ctx))
	}
	if o.poller != nil {
		errs = append(errs, o.poller.Start(ctx))
	}
	if o.purger != nil {
		errs = append(errs, o.purger.Start(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		o.state = stopped
		o.closing.Do(func() { o.shutdown(ctx) })
		return fmt.Errorf("outbox: starting: %w", errors.Join(err, o.err))
	}
	return nil
}

// Close stops polling and accepting, lets what is queued be delivered for
// DrainTimeout, then cancels the listeners' context; what was cut off is given
// back and is no failed attempt. When ctx ends earlier the draining is cut
// short. Transactions that are still open may end later, and what they wrote is
// left to other nodes and the next start. Every part is closed even if one
// fails. Closing before Start is fine.
//
// An ended ctx does not make Close short by itself: listeners that ignore that
// their context ended are waited for another DrainTimeout and a second, and the
// database as long again for outcomes. Closing again waits for the first close,
// whatever its own ctx, and returns its error. A listener that calls Close waits
// for itself, until that time is up.
func (o *Outbox) Close(ctx context.Context) error {
	o.mu.Lock()
	o.state = stopped
	o.mu.Unlock()
	o.closing.Do(func() { o.shutdown(ctx) })
	<-o.closed
	return o.err
}

func (o *Outbox) shutdown(ctx context.Context) {
	defer close(o.closed)
	var errs []error
	if o.purger != nil {
		errs = append(errs, o.purger.Close(ctx))
	}
	if o.poller != nil {
		errs = append(errs, o.poller.Close(ctx))
	}
	if o.dispatcher != nil {
		errs = append(errs, o.dispatcher.Close(ctx))
	}
	if c, ok := o.metrics.(io.Closer); ok {
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("outbox: closing the metrics: %w", err))
		}
	}
	o.err = errors.Join(errs...)
}

// Run starts the outbox, waits for ctx to end and closes it: for errgroups. It
// returns the start's or the close's error, not the context's.
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return o.Close(context.WithoutCancel(ctx))
}

// Wake makes the poller look now, as after rows were changed by hand.
func (o *Outbox) Wake() {
	if o.poller != nil {
		o.poller.Wake()
	}
}

// Stats says how the outbox is doing. Counts of rows stop at [StatsLimit] each,
// so that asking is cheap whatever the backlog.
type Stats struct {
	Pending int64 // Due + Delayed
	Due     int64 // NEW and RETRY rows that are due now
	Delayed int64 // NEW and RETRY rows that are due later
	Dead    int64
	// OldestDueAge is how long the oldest due event has been due; zero when
	// none is.
	OldestDueAge time.Duration
	// HotDepth and ColdDepth are the events that wait in this node's queues.
	HotDepth, ColdDepth int
	// LastPoll is [Poller.LastPoll] of this node; the zero time in a mode
	// without a poller, too.
	LastPoll time.Time
	// PollInterval is how often the poller reads an idle table; zero in a mode
	// without one.
	PollInterval time.Duration
}

// Stats reads the table's counts and the queues' depths.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	now := storedTime(o.clock.Now())
	s, err := o.store.Stats(ctx, o.db, now)
	if err != nil {
		return Stats{}, fmt.Errorf("outbox: reading stats: %w", err)
	}
	st := Stats{Pending: s.Due + s.Delayed, Due: s.Due, Delayed: s.Delayed, Dead: s.Dead}
	if !s.OldestDue.IsZero() {
		st.OldestDueAge = max(now.Sub(s.OldestDue), 0)
	}
	if o.dispatcher != nil {
		st.HotDepth, st.ColdDepth = o.dispatcher.Depths()
	}
	if o.poller != nil {
		st.LastPoll, st.PollInterval = o.poller.LastPoll(), o.poller.opts.Interval
	}
	return st, nil
}

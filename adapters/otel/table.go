package outboxotel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

// How the table is read.
const (
	// ReadInterval is how often at most, however often figures are collected:
	// 15 seconds.
	ReadInterval = tablestats.ReadInterval
	// ReadTimeout ends a read that the database does not answer: 5 seconds.
	ReadTimeout = tablestats.ReadTimeout
	// CollectWait is how long a collection waits for a read: 1 second.
	CollectWait = tablestats.Wait
	// MaxAge is how old values may be that a collection gets because the next
	// read is not through yet: 5 minutes.
	MaxAge = tablestats.MaxAge
)

// ErrRegistered says that these metrics watch a table already.
var ErrRegistered = errors.New("outboxotel: already registered")

// StatsSource is what [Metrics.WatchTable] reads; an [*outbox.Outbox] is one. It
// is an alias, so that WatchTable has one type in all packages that have it.
type StatsSource = interface {
	Stats(ctx context.Context) (outbox.Stats, error)
}

// WatchTable adds figures of the table and of the poller: call it when the
// outbox is made. The table is read when figures are collected, at most once in
// [ReadInterval], for at most [ReadTimeout]; without a provider it never is. A
// collection waits at most [CollectWait] and then gets the values of the read
// before, unless they are older than [MaxAge]. When the table cannot be read,
// table.up is 0, there are no values, and OpenTelemetry's error handler is told
// why, once until a read succeeds. It fails with [ErrRegistered] when called
// twice, and with [outbox.ErrClosed] after Close.
func (m *Metrics) WatchTable(source StatsSource) error {
	reader, err := tablestats.NewReader(source, m.tableTold())
	if err != nil {
		return err
	}
	if err := m.watchTable(reader); err != nil {
		return err
	}
	m.watch() // else the poller would, and a collection that is under way can take long
	return nil
}

func (m *Metrics) watchTable(reader *tablestats.Reader) (err error) {
	w := &m.table
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return fmt.Errorf("outboxotel: watching the table: %w", outbox.ErrClosed)
	case w.reader != nil:
		return fmt.Errorf("%w: figures of the table of %s; make metrics for each outbox", ErrRegistered, m.prefix)
	}
	in := &instruments{meter: m.meter, prefix: m.prefix}
	var observables []metric.Observable
	var observe [tablestats.Figures]observeFunc
	for f, d := range tablestats.Describe() {
		var o metric.Observable
		o, observe[f] = in.figure(d, m.kinds.plain.observe)
		observables = append(observables, o)
	}
	if err := in.err(); err != nil {
		return err
	}
	w.registration, err = m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		if values, ok := reader.Values(ctx); ok {
			values.Tell(func(f tablestats.Figure, value float64) { observe[f](o, value) })
		}
		return nil
	}, observables...)
	if err != nil {
		return fmt.Errorf("outboxotel: registering the figures of the table of %s: %w", m.prefix, err)
	}
	w.reader = reader
	return nil
}

// tableTold is for what the reads bring, one after the other. It does not
// register the gauges as QueueDepths does: a collection that waits for the read
// holds the lock of the SDK.
func (m *Metrics) tableTold() func(stats outbox.Stats, err error) {
	failing := false
	return func(stats outbox.Stats, err error) {
		switch {
		case err == nil: // the engine tells the depths only when it stores outcomes
			m.gauges.depths(stats.HotDepth, stats.ColdDepth)
		case !failing:
			handle(fmt.Errorf("outboxotel: reading the table of %s: %w (this is reported once until a read succeeds)", m.prefix, err))
		}
		failing = err != nil
	}
}

// watched is the table that WatchTable was given.
type watched struct {
	mu           sync.Mutex
	closed       bool
	err          error              // of closing
	reader       *tablestats.Reader // nil unless WatchTable was called
	registration metric.Registration
}

// close ends a read under way first: a collection that waits for it would keep
// the callback.
func (w *watched) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.reader == nil {
		w.closed = true
		return w.err
	}
	w.closed = true
	if err := w.reader.Close(); err != nil {
		w.err = fmt.Errorf("outboxotel: closing: %w", err)
	}
	if err := w.registration.Unregister(); err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("outboxotel: unregistering the figures of the table: %w", err))
	}
	return w.err
}

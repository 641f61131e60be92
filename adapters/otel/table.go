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
	// ReadInterval is the least time between reads, however often metrics are
	// collected: 15 seconds.
	ReadInterval = tablestats.ReadInterval
	// ReadTimeout ends a read that the database does not answer: 5 seconds.
	ReadTimeout = tablestats.ReadTimeout
	// CollectWait is how long a collection waits for a read: 1 second.
	CollectWait = tablestats.Wait
	// MaxAge is the greatest age of the values that a collection gets while the
	// next read is not done: 5 minutes.
	MaxAge = tablestats.MaxAge
)

// ErrRegistered says that these metrics already watch a table.
var ErrRegistered = errors.New("outboxotel: already registered")

// StatsSource is the source of [Metrics.WatchTable]; an [*outbox.Outbox] is one.
// It is an alias, so that WatchTable has one type in all packages that have it.
type StatsSource = interface {
	Stats(ctx context.Context) (outbox.Stats, error)
}

// WatchTable adds metrics of the table and of the poller: call it when the outbox
// is made. A collection reads the table, at most once in [ReadInterval], for at
// most [ReadTimeout]; without a provider nothing is read. A collection waits at
// most [CollectWait] and then gets the values of the previous read, unless they
// are older than [MaxAge]. When the table cannot be read, table.up is 0, there are
// no values, and OpenTelemetry's error handler gets the error, once until a read
// succeeds. It fails with [ErrRegistered] when called twice, and with
// [outbox.ErrClosed] after Close.
func (m *Metrics) WatchTable(source StatsSource) error {
	reader, err := tablestats.NewReader(source, m.tableTold())
	if err != nil {
		return err
	}
	if err := m.watchTable(reader); err != nil {
		return err
	}
	m.watch() // else the poller would do it, and would wait for a running collection
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

// tableTold gets the results of the reads, one at a time. Unlike QueueDepths it
// does not register the gauges: a collection that waits for the read holds the
// SDK's lock.
func (m *Metrics) tableTold() func(stats outbox.Stats, err error) {
	failing := false
	return func(stats outbox.Stats, err error) {
		switch {
		case err == nil: // the engine reports the depths only when it stores outcomes
			m.gauges.depths(stats.HotDepth, stats.ColdDepth)
		case !failing:
			handle(fmt.Errorf("outboxotel: reading the table of %s: %w (this is reported once until a read succeeds)", m.prefix, err))
		}
		failing = err != nil
	}
}

// watched is the table given to WatchTable.
type watched struct {
	mu           sync.Mutex
	closed       bool
	err          error              // of closing
	reader       *tablestats.Reader // nil unless WatchTable was called
	registration metric.Registration
}

// close ends a running read first: a collection that waits for it would keep the
// callback.
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

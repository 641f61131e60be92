package outboxotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

// ErrRegistered says that these metrics already watch a table.
var ErrRegistered = errors.New("outboxotel: already registered")

// WatchTable adds metrics of the table and of the poller. Call WatchTable when the outbox is made,
// with the [*outbox.Outbox] whose Config.Metrics is m. A collection reads the table, at most every
// 15 seconds and for at most 5 seconds; without a provider nothing is read. A collection waits for
// the read for at most one second. Then the collection gets the values of the previous read, unless
// they are older than 5 minutes. When the table cannot be read, table.up is 0 and there are no
// values; OpenTelemetry's error handler gets the error, once until a read succeeds. WatchTable
// fails with [ErrRegistered] when called twice, with [outbox.ErrClosed] after Close, and with an
// [*outbox.FieldError] for nil, and for an outbox that has no metrics or another [Metrics].
func (m *Metrics) WatchTable(source interface {
	Stats(ctx context.Context) (outbox.Stats, error)
},
) error {
	reader, err := tablestats.NewReader(m, source, m.onRead())
	if err != nil {
		return err
	}
	err = m.callbacks.add(func() (metric.Registration, error) {
		if m.callbacks.reader != nil {
			return nil, fmt.Errorf("%w; make metrics for each outbox", ErrRegistered)
		}
		registration, err := m.registerTable(reader)
		if err == nil {
			m.callbacks.reader = reader
		}
		return registration, err
	})
	if err != nil {
		return fmt.Errorf("outboxotel: watching the table of %s: %w", m.prefix, err)
	}
	m.started.Do(m.start) // else the poller would, and would wait for a running collection
	return nil
}

func (m *Metrics) registerTable(reader *tablestats.Reader) (metric.Registration, error) {
	in := &instruments{meter: m.meter, prefix: m.prefix}
	var observables []metric.Observable
	var observe [tablestats.Figures]observeFunc
	for f, d := range tablestats.Describe() {
		var o metric.Observable
		o, observe[f] = in.figure(d, m.kinds.plain.observe)
		observables = append(observables, o)
	}
	share := in.ratio(tablestats.Share)
	late := in.age(tablestats.LateAge.Name, tablestats.LateAge.Help)
	pauses := in.age(tablestats.PauseAge.Name, tablestats.PauseAge.Help)
	observables = append(observables, share, late, pauses)
	if err := in.err(); err != nil {
		return nil, err
	}
	return m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		if values, ok := reader.Values(ctx); ok {
			values.Each(func(f tablestats.Figure, value float64) { observe[f](o, value) })
			values.EachShare(func(kind outbox.EventKind, value float64) {
				o.ObserveFloat64(share, value, newLabels(m.kinds.attributes(kind)).observe...)
			})
			values.EachLate(func(kind outbox.EventKind, age float64) {
				o.ObserveFloat64(late, age, newLabels(m.kinds.attributes(kind)).observe...)
			})
			values.EachPause(func(kind outbox.EventKind, age float64) {
				o.ObserveFloat64(pauses, age, newLabels(m.kinds.attributes(kind)).observe...)
			})
		}
		return nil
	}, observables...)
}

// onRead returns a function that gets the result of each read, one at a time. Unlike QueueDepths,
// the function does not register the gauges: a collection that waits for the read holds the SDK's
// lock.
func (m *Metrics) onRead() func(stats outbox.Stats, err error) {
	failing := false
	return func(stats outbox.Stats, err error) {
		switch {
		case err == nil: // the engine reports the depths only when it stores outcomes
			m.gauges.depths(stats.HotDepth, stats.ColdDepth)
		case !failing:
			otel.Handle(fmt.Errorf("outboxotel: reading the table of %s: %w (this is reported once until a read succeeds)", m.prefix, err))
		}
		failing = err != nil
	}
}

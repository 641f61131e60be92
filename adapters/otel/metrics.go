package outboxotel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"

	"github.com/outboxkit/outbox-go/outbox"
)

// Metrics passes the engine's metrics to OpenTelemetry. Make a Metrics with [NewMetrics] for each
// outbox, and give it to [outbox.Config]; closing the outbox closes the Metrics. It is safe for
// concurrent use.
type Metrics struct {
	outbox.NopMetrics // for methods that are added later

	meter  metric.Meter
	prefix string
	kinds  *kinds

	hotEnqueued, hotDropped, hotSkipped, coldEnqueued     metric.Int64Counter
	delivered, failed, died, expired, deferred, leaseLost metric.Int64Counter
	latency, listener                                     metric.Float64Histogram
	batch                                                 metric.Int64Histogram

	gauges    gauges
	started   sync.Once // by the engine's first value, or by WatchTable
	callbacks callbacks
}

var (
	_ outbox.Metrics = (*Metrics)(nil)
	_ io.Closer      = (*Metrics)(nil)
)

// NewMetrics makes the instruments. It fails when the provider rejects an instrument, for example
// for an invalid prefix. [Metrics.WatchTable] or else the engine's first value registers the
// gauges' callback, so that an outbox that never starts leaves nothing with the provider.
func NewMetrics(opts ...MetricsOption) (*Metrics, error) {
	cfg, err := newMetricsConfig(opts)
	if err != nil {
		return nil, err
	}
	meter := cfg.provider.Meter(scopeName, metric.WithSchemaURL(semconv.SchemaURL))
	in := &instruments{meter: meter, prefix: cfg.prefix}
	m := &Metrics{
		meter: meter, prefix: cfg.prefix,
		hotEnqueued:  in.counter("enqueue.hot", "Events that entered the hot queue after their commit."),
		hotDropped:   in.counter("enqueue.hot.dropped", "Events that found the hot queue full; the poller delivers them."),
		hotSkipped:   in.counter("enqueue.hot.skipped.delayed", "Delayed events; the poller delivers them when they are due."),
		coldEnqueued: in.counter("enqueue.cold", "Events that the poller queued."),
		delivered:    in.counter("dispatch.success", "Events that were delivered and are stored as DONE."),
		failed:       in.counter("dispatch.failure", "Deliveries that failed and will be retried."),
		died:         in.counter("dispatch.dead", "Events that are stored as DEAD."),
		expired:      in.counter("dispatch.expired", "Events that expired before they were delivered."),
		deferred:     in.counter("dispatch.deferred", "Deliveries that the listener deferred."),
		leaseLost:    in.counter("lease.lost", "Outcomes that were refused because another node now holds the event's lease."),
		latency:      in.seconds("dispatch.latency", "Time from an event's occurrence until DONE is stored, delays and retries included.", latencyBounds),
		listener:     in.seconds("listener.duration", "Time that the interceptors and the listener took.", durationBounds),
		batch:        in.sizes("batch.size", "Events that the poller read at once; 0 is an idle table.", batchBounds),
	}
	m.gauges.make(in)
	m.kinds = newKinds(cfg.attributes, cfg.kinds, m.zeroKind)
	if err := in.err(); err != nil {
		return nil, err
	}
	return m, nil
}

// start registers the gauges and creates the counters, when the engine starts. A
// counter that appears with its first event shows no increase to a rate or an
// alert, which would miss the first death.
func (m *Metrics) start() {
	err := m.callbacks.add(func() (metric.Registration, error) {
		m.leaseLost.Add(context.Background(), 0, m.kinds.plain.add...)
		if m.kinds.known == nil {
			m.zeroKind(m.kinds.plain)
		}
		g := &m.gauges
		return m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			g.observe(o, m.kinds.plain.observe)
			return nil
		}, g.hotDepth, g.coldDepth, g.oldestLag)
	})
	if err != nil && !errors.Is(err, outbox.ErrClosed) {
		otel.Handle(fmt.Errorf("outboxotel: registering the gauges of %s: %w", m.prefix, err))
	}
}

// zeroKind creates the counters of a kind, when the kind is first seen.
func (m *Metrics) zeroKind(l *labels) {
	for _, c := range []metric.Int64Counter{
		m.hotEnqueued, m.hotDropped, m.hotSkipped, m.coldEnqueued, m.delivered, m.failed, m.died, m.expired, m.deferred,
	} {
		c.Add(context.Background(), 0, l.add...)
	}
}

// Close unregisters the gauges and the metrics of the table, which is not read again, so that a
// closed outbox does not keep reporting the last depths. The counters stay with the provider.
// Closing again does nothing and returns the same error.
func (m *Metrics) Close() error { return m.callbacks.close() }

// HotEnqueued counts enqueue.hot.
func (m *Metrics) HotEnqueued(kind outbox.EventKind) { m.count(m.hotEnqueued, kind) }

// HotDropped counts enqueue.hot.dropped.
func (m *Metrics) HotDropped(kind outbox.EventKind) { m.count(m.hotDropped, kind) }

// HotSkippedDelayed counts enqueue.hot.skipped.delayed.
func (m *Metrics) HotSkippedDelayed(kind outbox.EventKind) { m.count(m.hotSkipped, kind) }

// ColdEnqueued counts enqueue.cold.
func (m *Metrics) ColdEnqueued(kind outbox.EventKind) { m.count(m.coldEnqueued, kind) }

// Delivered counts dispatch.success and records dispatch.latency. The latency of an event from the
// future, by another machine's clock, is zero.
func (m *Metrics) Delivered(kind outbox.EventKind, latency time.Duration) {
	l := m.kinds.of(kind)
	m.delivered.Add(context.Background(), 1, l.add...)
	m.latency.Record(context.Background(), max(latency, 0).Seconds(), l.record...)
}

// Failed counts dispatch.failure.
func (m *Metrics) Failed(kind outbox.EventKind) { m.count(m.failed, kind) }

// Died counts dispatch.dead.
func (m *Metrics) Died(kind outbox.EventKind) { m.count(m.died, kind) }

// Expired counts dispatch.expired.
func (m *Metrics) Expired(kind outbox.EventKind) { m.count(m.expired, kind) }

// Deferred counts dispatch.deferred.
func (m *Metrics) Deferred(kind outbox.EventKind) { m.count(m.deferred, kind) }

// LeaseLost counts lease.lost.
func (m *Metrics) LeaseLost(count int) {
	m.leaseLost.Add(context.Background(), int64(count), m.kinds.plain.add...)
}

// ListenerRan records listener.duration.
func (m *Metrics) ListenerRan(kind outbox.EventKind, d time.Duration) {
	m.listener.Record(context.Background(), d.Seconds(), m.kinds.of(kind).record...)
}

// QueueDepths keeps queue.hot.depth and queue.cold.depth for the next collection.
func (m *Metrics) QueueDepths(hot, cold int) {
	m.gauges.depths(hot, cold)
	m.started.Do(m.start)
}

// OldestLag keeps lag.oldest for the next collection.
func (m *Metrics) OldestLag(d time.Duration) {
	m.gauges.lag.Store(int64(d))
	m.started.Do(m.start)
}

// BatchRead records batch.size.
func (m *Metrics) BatchRead(size int) {
	m.batch.Record(context.Background(), int64(size), m.kinds.plain.record...)
}

func (m *Metrics) count(c metric.Int64Counter, kind outbox.EventKind) {
	c.Add(context.Background(), 1, m.kinds.of(kind).add...)
}

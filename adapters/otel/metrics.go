package outboxotel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/outboxkit/outbox-go/outbox"
)

// Metrics passes the engine's metrics to OpenTelemetry. Make one with [NewMetrics]
// for each outbox, and give it to [outbox.Config]; closing the outbox closes it.
type Metrics struct {
	outbox.NopMetrics // for methods that are added later

	meter  metric.Meter
	prefix string
	kinds  *kinds
	table  watched

	hotEnqueued, hotDropped, hotSkipped, coldEnqueued metric.Int64Counter
	delivered, failed, died, deferred, leaseLost      metric.Int64Counter
	latency, listener                                 metric.Float64Histogram
	batch                                             metric.Int64Histogram

	gauges gauges
	watch  func() // registers the gauges, once

	mu           sync.Mutex
	closed       bool
	registration metric.Registration // of the gauges; nil until watch
	close        func() error
}

var (
	_ outbox.Metrics = (*Metrics)(nil)
	_ io.Closer      = (*Metrics)(nil)
)

// gauges are the last values from the engine. A value that the engine has not
// reported is absent: without a poller there is no lag, not a lag of zero.
type gauges struct {
	hot, cold   atomic.Int64
	lag         atomic.Int64 // in nanoseconds
	depthsKnown atomic.Bool
	lagKnown    atomic.Bool
}

func (g *gauges) depths(hot, cold int) {
	g.hot.Store(int64(hot))
	g.cold.Store(int64(cold))
	g.depthsKnown.Store(true)
}

// NewMetrics makes the instruments. It fails when the provider rejects one, for
// example for an invalid prefix. [Metrics.WatchTable] registers the gauges'
// callback, or else the engine's first value does, so that an outbox that never
// starts leaves nothing with the provider.
func NewMetrics(opts ...MetricsOption) (*Metrics, error) {
	cfg, err := newMetricsConfig(opts)
	if err != nil {
		return nil, err
	}
	meter := cfg.provider.Meter(scopeName, metric.WithSchemaURL(semconv.SchemaURL))
	in := &instruments{meter: meter, prefix: cfg.prefix}
	m := &Metrics{
		meter: meter, prefix: cfg.prefix,
		hotEnqueued:  in.counter("enqueue.hot", "Events that went into the hot queue after their commit."),
		hotDropped:   in.counter("enqueue.hot.dropped", "Events that found the hot queue full; the poller brings them."),
		hotSkipped:   in.counter("enqueue.hot.skipped.delayed", "Events that are delayed; the poller brings them in time."),
		coldEnqueued: in.counter("enqueue.cold", "Events that the poller brought."),
		delivered:    in.counter("dispatch.success", "Events that became DONE."),
		failed:       in.counter("dispatch.failure", "Deliveries that failed and are tried again."),
		died:         in.counter("dispatch.dead", "Events that became DEAD."),
		deferred:     in.counter("dispatch.deferred", "Deliveries whose listener asked for the event again later."),
		leaseLost:    in.counter("lease.lost", "Outcomes that were refused because another node holds the event."),
		latency:      in.seconds("dispatch.latency", "Time from an event's occurrence until it was DONE.", latencyBounds),
		listener:     in.seconds("listener.duration", "Time that interceptors and listener took.", durationBounds),
		batch:        in.sizes("batch.size", "Events that the poller read at once.", batchBounds),
	}
	m.kinds = newKinds(cfg.attributes, cfg.kinds, m.zeroKind)
	hot := in.depth("queue.hot.depth", "Events that wait in the hot queue.")
	cold := in.depth("queue.cold.depth", "Events that wait in the cold queue.")
	lag := in.lag("lag.oldest", "How long the oldest due event of the last poll had been due.")
	if err := in.err(); err != nil {
		return nil, err
	}
	observe := m.kinds.plain.observe
	report := func(_ context.Context, o metric.Observer) error {
		if m.gauges.depthsKnown.Load() {
			o.ObserveInt64(hot, m.gauges.hot.Load(), observe...)
			o.ObserveInt64(cold, m.gauges.cold.Load(), observe...)
		}
		if m.gauges.lagKnown.Load() {
			o.ObserveFloat64(lag, time.Duration(m.gauges.lag.Load()).Seconds(), observe...)
		}
		return nil
	}
	m.watch = sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.closed {
			return
		}
		m.zero()
		registration, err := meter.RegisterCallback(report, hot, cold, lag)
		if err != nil {
			handle(fmt.Errorf("outboxotel: registering the gauges of %s: %w", cfg.prefix, err))
			return
		}
		m.registration = registration
	})
	m.close = sync.OnceValue(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.closed = true
		if m.registration == nil {
			return nil
		}
		if err := m.registration.Unregister(); err != nil {
			return fmt.Errorf("outboxotel: unregistering the gauges of %s: %w", cfg.prefix, err)
		}
		return nil
	})
	return m, nil
}

// Close unregisters the gauges and the metrics of the table, which is not read
// again, so that a closed outbox does not keep reporting its last depths. The
// counters stay with the provider. Closing again does nothing and returns the same
// error.
func (m *Metrics) Close() error { return errors.Join(m.table.close(), m.close()) }

// HotEnqueued counts enqueue.hot.
func (m *Metrics) HotEnqueued(kind outbox.EventKind) { m.count(m.hotEnqueued, kind) }

// HotDropped counts enqueue.hot.dropped.
func (m *Metrics) HotDropped(kind outbox.EventKind) { m.count(m.hotDropped, kind) }

// HotSkippedDelayed counts enqueue.hot.skipped.delayed.
func (m *Metrics) HotSkippedDelayed(kind outbox.EventKind) { m.count(m.hotSkipped, kind) }

// ColdEnqueued counts enqueue.cold.
func (m *Metrics) ColdEnqueued(kind outbox.EventKind) { m.count(m.coldEnqueued, kind) }

// Delivered counts dispatch.success and records dispatch.latency. The latency of
// an event from the future, by another machine's clock, is zero.
func (m *Metrics) Delivered(kind outbox.EventKind, latency time.Duration) {
	l := m.kinds.of(kind)
	m.delivered.Add(context.Background(), 1, l.add...)
	m.latency.Record(context.Background(), max(latency, 0).Seconds(), l.record...)
}

// Failed counts dispatch.failure.
func (m *Metrics) Failed(kind outbox.EventKind) { m.count(m.failed, kind) }

// Died counts dispatch.dead.
func (m *Metrics) Died(kind outbox.EventKind) { m.count(m.died, kind) }

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
	m.watch()
}

// OldestLag keeps lag.oldest for the next collection.
func (m *Metrics) OldestLag(d time.Duration) {
	m.gauges.lag.Store(int64(d))
	m.gauges.lagKnown.Store(true)
	m.watch()
}

// BatchRead records batch.size.
func (m *Metrics) BatchRead(size int) {
	m.batch.Record(context.Background(), int64(size), m.kinds.plain.record...)
}

func (m *Metrics) count(c metric.Int64Counter, kind outbox.EventKind) {
	c.Add(context.Background(), 1, m.kinds.of(kind).add...)
}

package outboxprom

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// ErrRegistered says that the registry already has metrics of these names and
// labels.
var ErrRegistered = errors.New("outboxprom: already registered")

// Metrics is an [outbox.Metrics] that Prometheus scrapes. Make a Metrics for each outbox with
// [New]. It is safe for concurrent use; counting takes no lock and allocates nothing.
type Metrics struct {
	outbox.NopMetrics // for methods to come

	registerer prometheus.Registerer
	opts       options
	own        *prometheus.Registry // registered as a single collector: all metrics or nothing

	all       *series // nil with event labels
	kinds     *kinds  // nil without event labels
	leaseLost prometheus.Counter
	hotDepth  prometheus.Gauge
	coldDepth prometheus.Gauge
	oldestLag prometheus.Gauge
	batchSize prometheus.Histogram

	mu     sync.Mutex
	closed bool
	table  *table // nil unless WatchTable was called
}

var (
	_ outbox.Metrics = (*Metrics)(nil)
	_ io.Closer      = (*Metrics)(nil)
)

// New makes the metrics of an outbox and registers them, all or nothing. New fails with
// [ErrRegistered] if the registry has the same metrics, for example the metrics of another outbox:
// a shared gauge would be wrong for both. Invalid options are an [outbox.FieldError].
func New(registerer prometheus.Registerer, opts ...Option) (*Metrics, error) {
	if nilness.IsNil(registerer) {
		return nil, &outbox.FieldError{Field: "New.registerer", Problem: "is nil; prometheus.DefaultRegisterer is the usual one"}
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: o.prefix, Name: name, Help: help, ConstLabels: o.labels})
	}
	m := &Metrics{
		registerer: registerer, opts: o, own: prometheus.NewRegistry(),
		leaseLost: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: o.prefix, Name: "lease_lost_total", ConstLabels: o.labels,
			Help: "Outcomes that were refused because another node now holds the event's lease.",
		}),
		hotDepth:  gauge("queue_hot_depth", "Events that wait in the hot queue."),
		coldDepth: gauge("queue_cold_depth", "Events that wait in the cold queue."),
		oldestLag: gauge("lag_oldest_seconds", "How long the oldest event of the last poll had been due."),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: o.prefix, Name: "batch_size", ConstLabels: o.labels, Buckets: batchBuckets,
			Help: "Events that the poller read at once; 0 is an idle table.",
		}),
	}
	v := newVectors(&o)
	if o.events {
		m.kinds = newKinds(v, o.kinds)
	} else {
		m.all = v.series()
	}
	m.own.MustRegister(append(v.collectors(), m.leaseLost, m.hotDepth, m.coldDepth, m.oldestLag, m.batchSize)...)
	if err := m.register(m.own, "metrics"); err != nil {
		return nil, err
	}
	return m, nil
}

// register registers collectors, and says how to resolve a conflict.
func (m *Metrics) register(c prometheus.Collector, what string) error {
	return register(m.registerer, m.opts.prefix, c, what, "outbox")
}

func register(registerer prometheus.Registerer, prefix string, c prometheus.Collector, what, whose string) error {
	err := registerer.Register(c)
	if err == nil {
		return nil
	}
	way := "give each " + whose + " a prefix (WithPrefix), or the same options and constant labels of the same names with different values (WithConstLabels)"
	if already := (prometheus.AlreadyRegisteredError{}); errors.As(err, &already) {
		return fmt.Errorf("%w: %s %s_*; %s", ErrRegistered, what, prefix, way)
	}
	return fmt.Errorf("outboxprom: registering the %s %s_*: %w; %s", what, prefix, err, way)
}

// Close unregisters the metrics. The outbox closes its metrics last, so call Close only if no
// outbox uses them. Closing again does nothing, even if other metrics have the names by then.
func (m *Metrics) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	m.registerer.Unregister(m.own)
	if m.table == nil {
		return nil
	}
	m.registerer.Unregister(m.table)
	return m.table.close()
}

func (m *Metrics) of(kind outbox.EventKind) *series {
	if m.all != nil {
		return m.all
	}
	return m.kinds.of(kind)
}

// HotEnqueued implements [outbox.Metrics].
func (m *Metrics) HotEnqueued(kind outbox.EventKind) { m.of(kind).hot.Inc() }

// HotDropped implements [outbox.Metrics].
func (m *Metrics) HotDropped(kind outbox.EventKind) { m.of(kind).dropped.Inc() }

// HotSkippedDelayed implements [outbox.Metrics].
func (m *Metrics) HotSkippedDelayed(kind outbox.EventKind) { m.of(kind).skipped.Inc() }

// ColdEnqueued implements [outbox.Metrics].
func (m *Metrics) ColdEnqueued(kind outbox.EventKind) { m.of(kind).cold.Inc() }

// Delivered implements [outbox.Metrics]. A clock that was set back gives no
// negative latency.
func (m *Metrics) Delivered(kind outbox.EventKind, latency time.Duration) {
	s := m.of(kind)
	s.success.Inc()
	s.latency.Observe(max(latency, 0).Seconds())
}

// Failed implements [outbox.Metrics].
func (m *Metrics) Failed(kind outbox.EventKind) { m.of(kind).failure.Inc() }

// Died implements [outbox.Metrics].
func (m *Metrics) Died(kind outbox.EventKind) { m.of(kind).dead.Inc() }

// Expired implements [outbox.Metrics].
func (m *Metrics) Expired(kind outbox.EventKind) { m.of(kind).expired.Inc() }

// Deferred implements [outbox.Metrics].
func (m *Metrics) Deferred(kind outbox.EventKind) { m.of(kind).deferred.Inc() }

// LeaseLost implements [outbox.Metrics].
func (m *Metrics) LeaseLost(count int) { m.leaseLost.Add(float64(max(count, 0))) }

// ListenerRan implements [outbox.Metrics].
func (m *Metrics) ListenerRan(kind outbox.EventKind, d time.Duration) {
	m.of(kind).listener.Observe(max(d, 0).Seconds())
}

// QueueDepths implements [outbox.Metrics].
func (m *Metrics) QueueDepths(hot, cold int) {
	m.hotDepth.Set(float64(hot))
	m.coldDepth.Set(float64(cold))
}

// OldestLag implements [outbox.Metrics].
func (m *Metrics) OldestLag(d time.Duration) { m.oldestLag.Set(d.Seconds()) }

// BatchRead implements [outbox.Metrics].
func (m *Metrics) BatchRead(size int) { m.batchSize.Observe(float64(size)) }

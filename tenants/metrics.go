package tenants

import (
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Metrics let the outboxes of all tenants count with the same [outbox.Metrics]. Make Metrics with
// [ShareMetrics], and give each outbox a [Metrics.ForTenant]. They are safe for concurrent use.
type Metrics struct {
	all outbox.Metrics

	mu        sync.Mutex
	tenants   map[*tenantMetrics]bool
	hot, cold int // of all tenants
}

// ShareMetrics makes metrics for the outboxes of all tenants. They are counted together: tenants are no
// label, of which there would be too many.
func ShareMetrics(all outbox.Metrics) *Metrics {
	return &Metrics{all: all, tenants: map[*tenantMetrics]bool{}}
}

// ForTenant are the metrics of an outbox. The depths of the queues of all outboxes are added, and the greatest
// of their lags is the oldest lag. When the outbox closes, the part of the outbox is taken away, and the shared
// metrics stay open.
func (m *Metrics) ForTenant() outbox.Metrics {
	t := &tenantMetrics{Metrics: m.all, shared: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tenants[t] = true
	return t
}

// tenantMetrics are the metrics of an outbox. Counters go to the shared metrics; the figures below are the
// last ones of the outbox, guarded by shared.mu.
type tenantMetrics struct {
	outbox.Metrics
	shared *Metrics

	hot, cold int
	lag       time.Duration
}

// QueueDepths implements [outbox.Metrics].
func (t *tenantMetrics) QueueDepths(hot, cold int) {
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	t.depths(hot, cold)
}

// OldestLag implements [outbox.Metrics].
func (t *tenantMetrics) OldestLag(d time.Duration) {
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	t.lag = d
	t.shared.oldestLag()
}

// Close takes the part of the outbox away. The outbox calls Close when it closes.
func (t *tenantMetrics) Close() error {
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	delete(t.shared.tenants, t)
	t.depths(0, 0)
	t.shared.oldestLag()
	return nil
}

// depths replaces the depths of an outbox in the sums of all outboxes. shared.mu is held.
func (t *tenantMetrics) depths(hot, cold int) {
	m := t.shared
	m.hot, m.cold = m.hot+hot-t.hot, m.cold+cold-t.cold
	t.hot, t.cold = hot, cold
	m.all.QueueDepths(m.hot, m.cold)
}

// oldestLag tells the greatest lag. m.mu is held.
func (m *Metrics) oldestLag() {
	var lag time.Duration
	for t := range m.tenants {
		lag = max(lag, t.lag)
	}
	m.all.OldestLag(lag)
}

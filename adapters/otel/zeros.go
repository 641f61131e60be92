package outboxotel

import (
	"context"

	"go.opentelemetry.io/otel/metric"
)

// zero creates the counters when the engine starts. A counter that appears with
// its first event shows no increase to a rate or an alert, which would miss the
// first death.
func (m *Metrics) zero() {
	m.leaseLost.Add(context.Background(), 0, m.kinds.plain.add...)
	if m.kinds.other == nil {
		m.zeroKind(m.kinds.plain)
	}
}

// zeroKind does the same for the counters of a kind, when the kind is first seen.
func (m *Metrics) zeroKind(l *labels) {
	for _, c := range []metric.Int64Counter{
		m.hotEnqueued, m.hotDropped, m.hotSkipped, m.coldEnqueued, m.delivered, m.failed, m.died, m.deferred,
	} {
		c.Add(context.Background(), 0, l.add...)
	}
}

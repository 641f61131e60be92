package outboxotel

import (
	"context"

	"go.opentelemetry.io/otel/metric"
)

// zero makes the counters exist when the engine starts. A counter that appears
// with its first event has no rise that a rate or an alert could see: the first
// death would be none.
func (m *Metrics) zero() {
	m.leaseLost.Add(context.Background(), 0, m.kinds.plain.add...)
	if m.kinds.other == nil {
		m.zeroKind(m.kinds.plain)
	}
}

// zeroKind is that for the counters of a kind, when it is first seen.
func (m *Metrics) zeroKind(l *labels) {
	for _, c := range []metric.Int64Counter{
		m.hotEnqueued, m.hotDropped, m.hotSkipped, m.coldEnqueued, m.delivered, m.failed, m.died, m.deferred,
	} {
		c.Add(context.Background(), 0, l.add...)
	}
}

package outboxprom_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/outbox"
)

// hotEvent makes the engine's calls for one event on the hot path.
func hotEvent(m outbox.Metrics) {
	m.HotEnqueued(placed)
	m.ListenerRan(placed, 300*time.Microsecond)
	m.Delivered(placed, 2*time.Millisecond)
}

func BenchmarkHotEvent(b *testing.B) {
	for name, opts := range map[string][]outboxprom.Option{
		"plain":  nil,
		"labels": {outboxprom.WithEventLabels(0)},
	} {
		b.Run(name, func(b *testing.B) {
			m := newMetrics(b, prometheus.NewRegistry(), opts...)
			for range 99 { // as many kinds as there may be
				m.HotEnqueued(outbox.EventKind{AggregateType: "Order", EventType: outbox.EventType(time.Now().String())})
			}
			b.ReportAllocs()
			for b.Loop() {
				hotEvent(m)
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			m := newMetrics(b, prometheus.NewRegistry(), opts...)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					hotEvent(m)
				}
			})
		})
	}
	b.Run("none", func(b *testing.B) {
		var m outbox.Metrics = outbox.NopMetrics{}
		b.ReportAllocs()
		for b.Loop() {
			hotEvent(m)
		}
	})
}

func TestCountingAllocatesNothing(t *testing.T) { // not parallel: allocations are counted per process
	for _, opts := range [][]outboxprom.Option{nil, {outboxprom.WithEventLabels(1)}} {
		m := newMetrics(t, prometheus.NewRegistry(), opts...)
		other := outbox.EventKind{AggregateType: "Order", EventType: "Other"}
		callAll(m, placed)
		callAll(m, other)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			callAll(m, placed)
			callAll(m, other)
		}))
	}
}

package outboxotel

import (
	"math"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/internal/tablestats"
)

// unknown is a gauge's value before the engine reports a value. Then the gauge is absent: without a
// poller there is no lag, not a lag of zero.
const unknown = math.MinInt64

// gauges keep the last values from the engine for the next collection.
type gauges struct {
	hotDepth, coldDepth metric.Int64ObservableGauge
	oldestLag           metric.Float64ObservableGauge

	hot, cold atomic.Int64
	lag       atomic.Int64 // in nanoseconds
}

func (g *gauges) make(in *instruments) {
	g.hotDepth = in.number("queue.hot.depth", tablestats.Events, "Events that wait in the hot queue.")
	g.coldDepth = in.number("queue.cold.depth", tablestats.Events, "Events that wait in the cold queue.")
	g.oldestLag = in.age("lag.oldest", "How long the oldest event of the last poll had been due.")
	for _, value := range []*atomic.Int64{&g.hot, &g.cold, &g.lag} {
		value.Store(unknown)
	}
}

func (g *gauges) depths(hot, cold int) {
	g.cold.Store(int64(cold))
	g.hot.Store(int64(hot))
}

func (g *gauges) observe(o metric.Observer, opts []metric.ObserveOption) {
	if hot := g.hot.Load(); hot != unknown {
		o.ObserveInt64(g.hotDepth, hot, opts...)
		o.ObserveInt64(g.coldDepth, g.cold.Load(), opts...)
	}
	if lag := g.lag.Load(); lag != unknown {
		o.ObserveFloat64(g.oldestLag, time.Duration(lag).Seconds(), opts...)
	}
}
